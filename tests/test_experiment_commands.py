"""Commands of experiments: run once, taken up where they were stopped, and never mixed with others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import commands


class Command:
    """Stands for `dspark`: remembers its arguments, may start a run, and ends as it is told."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.code, self.starts = 0, True

    def __call__(self, arguments: list[str]) -> int:
        self.calls.append(arguments)
        (word,) = (word for word in arguments if word.startswith("hydra.run.dir="))
        if self.starts:
            (Path(word.partition("=")[2]) / "provenance.json").write_text("{}")
        return self.code


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    command = Command()
    monkeypatch.setattr(commands, "dspark", command)
    return command


def test_what_has_ended_is_not_run_again(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    for _ in range(2):
        assert commands.kept(["run", "policy=fixed"], folder) == folder
    assert command.calls == [["run", "policy=fixed", f"hydra.run.dir={folder}"]]
    assert json.loads((folder / commands.ASKED).read_text())["ended"] is True


def test_what_was_interrupted_goes_on(command: Command, tmp_path: Path) -> None:
    command.code = 130
    with pytest.raises(KeyboardInterrupt):
        commands.kept(["record"], tmp_path / "a")
    command.code = 0
    commands.kept(["record"], tmp_path / "a")
    assert [words[-1] for words in command.calls] == [f"hydra.run.dir={tmp_path / 'a'}", "resume=true"]


def test_other_settings_do_not_go_into_the_same_folder(command: Command, tmp_path: Path) -> None:
    commands.kept(["record", "record.depth=3"], tmp_path / "a")
    with pytest.raises(ValueError, match="a holds another run: remove it, or give another --out"):
        commands.kept(["record", "record.depth=4"], tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "provenance.json").write_text("{}")
    with pytest.raises(ValueError, match="b holds another run"):
        commands.kept(["record"], tmp_path / "b")
    assert len(command.calls) == 1


def test_a_refused_command_can_be_mended(command: Command, tmp_path: Path) -> None:
    command.code, command.starts = 2, False
    with pytest.raises(ValueError, match="dspark record record.depth=-1 did not end well; see above"):
        commands.kept(["record", "record.depth=-1"], tmp_path / "a")
    command.code, command.starts = 0, True
    commands.kept(["record", "record.depth=1"], tmp_path / "a")
    assert command.calls[-1] == ["record", "record.depth=1", f"hydra.run.dir={tmp_path / 'a'}"]
