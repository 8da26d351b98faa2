"""`dspark` explains itself, quickly, and knows its commands."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import dspark as package
from dspark.cli.main import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Result

# ---- help ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_the_overview_names_every_command_with_an_example(
    dspark: Callable[..., Result], arguments: tuple[str, ...]
) -> None:
    result = dspark(*arguments)
    assert (result.code, result.err) == (0, "")
    for name, (what, example) in COMMANDS.items():
        assert f"dspark {name}" in result.out
        assert what in result.out
        assert example in result.out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_of_a_command_lists_groups_options_and_settings(
    dspark: Callable[..., Result], command: str
) -> None:
    result = dspark(command, "--help")
    assert result.code == 0
    # an audit generates no text for its own sake, and nothing in it is worth going on with
    settings = ("audit.case",) if command == "audit" else ("sampling.max_new_tokens", "resume=true")
    choices = ("ngram", "smollm2", "rejection")
    if command == "roofline":  # which runs nothing: its models and machines are names
        choices, settings = ("smollm2", "qwen3_8b", "h200"), ("context=1024", "target.source=DIR")
    if command == "export":  # which runs nothing either
        choices, settings = ("vllm", "sglang", "spec_bench"), ("export.schedule=FILE", "export.out=FILE")
    if command == "tune":
        choices, settings = ("profile", "published", "roofline"), ("trace=FILE", "tune.confidence=0.95")
    if command == "replay":
        choices, settings = ("profile", "published"), ("trace=FILE", "replay.confidence=0.95", "resume=true")
    if command == "train":
        settings = ("answers.max_new_tokens", "resume=true", "draft.kind=dspark|dflash|eagle3")
    if command == "report":
        choices, settings = ("DIR", "outputs/run-sweep/"), ("--sort COLUMN", "--x NUMBER", "--out OUT")
    if command == "doctor":
        choices, settings = ("threads", "memory", "device"), ("--json",)
    if command == "completion":
        choices, settings = ("bash", "zsh", "fish"), ('eval "$(dspark completion bash)"',)
    if command == "reproduce":
        choices, settings = ("list", "all", "NAME=VALUE"), ("--quick", "--again", "--out DIR")
    for shown in (*choices, f"dspark {command} ", *settings):
        assert shown in result.out


def test_version(dspark: Callable[..., Result]) -> None:
    assert dspark("--version").out == f"dspark {package.__version__}\n"


def test_the_composed_configuration_can_be_printed(dspark: Callable[..., Result]) -> None:
    result = dspark("run", "--cfg", "job", "policy.depth=7")
    assert result.code == 0
    assert "depth: 7" in result.out


def test_explaining_imports_neither_torch_nor_hydra() -> None:
    code = (
        "import sys; from dspark.cli.main import main; code = main([]); "
        "assert code == 0 and not {'torch', 'hydra', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- wrong commands --------------------------------------------------------------------------


def test_an_unknown_command_is_answered_with_the_likely_one(dspark: Callable[..., Result]) -> None:
    known = ", ".join(COMMANDS)
    assert dspark("compere").error == f"no command 'compere': did you mean 'compare'? there are {known}"


def test_an_unknown_flag_is_one_line(dspark: Callable[..., Result]) -> None:
    assert "no flag --multrun: did you mean --multirun?" in dspark("run", "--multrun").error
