"""`dspark reproduce` as it is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dspark.cli import reproduce
from dspark.cli.main import main
from experiments.reproduce import Setting, command, registry
from tests.experiments.stand_ins import experiment, fails, is_interrupted, works

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, object]:
    """Three experiments in place of the real ones; a test may add others."""
    size = (Setting(name="size", what="how large it is", default="3"),)
    there = {
        "e90_works": experiment("e90_works", works, settings=size),
        "e91_too": experiment("e91_too", works),
    }
    for module in (registry, command):
        monkeypatch.setattr(module, "names", lambda: sorted(there))
    monkeypatch.setattr(registry, "load", there.__getitem__)
    monkeypatch.chdir(tmp_path)
    return there


def _error(capsys: Capture) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dspark: error: ")
    return line


def test_list_has_every_experiment_and_its_settings(capsys: Capture) -> None:
    assert main(["reproduce", "list"]) == 0
    printed = capsys.readouterr().out
    for name in registry.names():
        assert name in printed
    assert "traces=VALUE: folder of the acceptance traces" in printed


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_teaches(capsys: Capture, arguments: list[str]) -> None:
    assert main(["reproduce", *arguments]) == 0
    printed = capsys.readouterr().out
    for word in ("dspark reproduce list", "--quick", "--again", "--out", "shape only", "report.html"):
        assert word in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["e90_wroks"],
            "no experiment 'e90_wroks': did you mean 'e90_works'? there are all, e90_works, e91_too",
        ),
        (["e55"], "no experiment 'e55'"),
        (["e90", "sise=4"], "no setting 'sise': did you mean 'size'?"),
        (["e91", "size=4"], "no setting 'size': the experiments asked for have none"),
        (["e90", "size=4", "size=5"], "size must be set once, got '4' and '5'"),
        (["size=4"], "say what to run: all, or some of e90_works, e91_too"),
        (["list", "e90"], "`list` goes alone"),
        (["e90", "--quik"], "unrecognized arguments: --quik"),
    ],
)
def test_mistakes_are_one_line(stand_ins, tmp_path: Path, capsys: Capture, words, message) -> None:
    assert main(["reproduce", *words]) == 2
    assert message in _error(capsys)
    assert list(tmp_path.iterdir()) == []


def test_outside_a_checkout_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(reproduce, "CHECKOUT", tmp_path)
    assert main(["reproduce", "list"]) == 2
    assert "in a checkout of the repository" in _error(capsys)


def test_a_run_tells_writes_and_remembers(stand_ins, tmp_path: Path, capsys: Capture) -> None:
    assert main(["reproduce", "e91", "--out", "out"]) == 0
    assert main(["reproduce", "e90_works", "size=7", "--out", "out"]) == 0
    printed = capsys.readouterr().out
    assert "e90_works" in printed
    assert "report: out/report.html" in printed
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Title of e90_works" in page
    assert "Title of e91_too" in page, "of the call before"
    assert "<dd>7</dd>" in page
    assert "dspark reproduce e90_works size=7 --out out" in page


def test_a_failure_is_told_by_the_exit_code(stand_ins, tmp_path: Path, capsys: Capture) -> None:
    stand_ins["e91_too"] = experiment("e91_too", fails)
    assert main(["reproduce", "all", "--out", "out"]) == 1
    assert "e91_too: RuntimeError: a wheel <came> off" in capsys.readouterr().out


def test_an_interrupt_leaves_a_report(stand_ins, tmp_path: Path, capsys: Capture) -> None:
    stand_ins["e91_too"] = experiment("e91_too", is_interrupted)
    assert main(["reproduce", "all", "--out", "out"]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert "Title of e90_works" in (tmp_path / "out" / "report.html").read_text()
