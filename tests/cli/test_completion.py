"""TAB completes commands, flags, groups, options and settings; in bash for real."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dspark.cli import completion
from dspark.cli.completion import PLAIN_WORDS, SCRIPTS, suggestions
from dspark.cli.launch import FLAGS
from dspark.cli.main import COMMANDS
from dspark.config.paths import config_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

POLICIES = sorted(f"policy={path.stem}" for path in (config_dir() / "policy").glob("*.yaml"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dspark ", sorted([*COMMANDS, "--help", "--version"])),
        ("dspark r", sorted(name for name in COMMANDS if name.startswith("r"))),
        ("dspark run --mul", ["--multirun"]),
        ("dspark run policy=", POLICIES),
        ("dspark run policy=conf", [word for word in POLICIES if word.startswith("policy=conf")]),
        ("dspark run policy.de", ["policy.depth="]),
        ("dspark run policy=confidence policy.thr", ["policy.threshold="]),
        ("dspark run -m 'compare.policies=[fixed 0]' engine.numer", ["engine.numerics="]),
        ("dspark doctor --", ["--help", "--json"]),
        ("dspark completion b", ["bash"]),
        ("dspark nonsense ", []),
        ("dspark reproduce a", ["all"]),
        ("dspark reproduce e03", ["e03_selection_bias"]),
        ("dspark reproduce all --q", ["--quick"]),
        ("dspark run 'open", []),
    ],
)
def test_what_may_follow(line: str, expected: list[str]) -> None:
    assert suggestions(line) == expected


def test_the_options_of_a_users_folder_are_offered(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "mine.yaml").write_text("_target_: my.Policy\n")
    assert suggestions(f"dspark run --config-dir {tmp_path} policy=mi") == ["policy=mine"]


def test_the_words_are_words_that_the_commands_take(dspark: Callable[..., Result]) -> None:
    assert set(completion._HYDRA_FLAGS) <= set(FLAGS)
    plain = {name for name in COMMANDS if not (config_dir() / f"{name}.yaml").is_file()}
    assert set(PLAIN_WORDS) == plain
    for name, words in PLAIN_WORDS.items():
        shown = dspark(name, "--help").out
        assert [word for word in words if word not in shown] == []
        usage = shown[: shown.index("\n\n")]
        flags = set(re.findall(r"(?<!\w)--[a-z]+", usage)) - {"--query"}  # which the scripts ask, not people
        assert flags <= set(words), name


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_the_word_before_the_cursor(tmp_path: Path) -> None:
    program = tmp_path / "dspark"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dspark "$@"\n')
    program.chmod(0o755)
    typed = f"{program} run policy=confid drafter=ngram"
    at = typed.index(" drafter")  # the cursor is not at the end
    script = f"""{SCRIPTS["bash"]}
        COMP_WORDS=({program} run policy = confid) COMP_LINE="{typed}" COMP_POINT={at}
        _dspark_complete
        printf '%s|' "${{COMPREPLY[@]}}"
        complete -p dspark
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    replies, _, registered = done.stdout.rpartition("|")
    assert replies == "confidence |confidence_stop "  # bash has "policy=" already
    assert registered == "complete -o default -o nospace -F _dspark_complete dspark\n"


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_a_script_asks_this_command(dspark: Callable[..., Result], shell: str) -> None:
    result = dspark("completion", shell)
    assert result.out == SCRIPTS[shell]
    assert "completion --query" in result.out


@pytest.mark.parametrize(("arguments", "told"), [((), "shell"), (("tcsh",), "bash, fish, zsh")])
def test_what_it_does_not_know_is_one_line(
    dspark: Callable[..., Result], arguments: tuple[str, ...], told: str
) -> None:
    error = dspark("completion", *arguments).error.replace("'", "")
    assert told in error
    assert "`dspark completion --help`" in error


def test_hydras_own_script_is_refused_with_ours(dspark: Callable[..., Result]) -> None:
    assert "`dspark completion bash`" in dspark("run", "-sc", "install=bash").error
