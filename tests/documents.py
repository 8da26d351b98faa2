"""What tests of the prose share: fenced blocks, commands in them, and running these in seconds."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dspark.cli.main import main

REPO = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "experiments/**/*.md")
    for path in REPO.glob(pattern)
    if path.is_file() and ".venv" not in path.parts  # an experiment may have an environment of its own
)

SHORTENED = ("debug=smoke", "workload.num_requests=2", "sampling.max_new_tokens=8")
"""Appended to a documented command: the tiny target and no tracker, two requests, eight tokens."""
SHORT_AUDIT = ("audit.num_random=1", "audit.num_hunted=5", "audit.num_probed=5", "audit.trace_steps=0")
"""The same for an audit, which has no requests: few worlds and no engine."""
SHORT_TRAIN = (
    *("target=synthetic", "tracker=none", "prompts.folder=null", "answers.folder=answers"),
    *("prompts.sources=[{name: builtin, path: null, max_prompt_chars: 90}]", "answers.temperatures=[0.0]"),
    *("answers.max_new_tokens=6", "draft.feature_layers=[0]", "draft.initial_layers=null"),
    *("draft.vocab_size=64", "draft.mask_token_id=0", "train.num_steps=2", "train.batch_size=2"),
    *("train.held_out_share=0.3", "train.num_eval_answers=2"),
)
"""The same for a training: a tiny target, short answers, two steps."""
SHORT_ROOFLINE = ("batch_sizes=[1,8]", "depths=[0,2]")
"""The same for a roofline, which runs no model."""


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a Markdown file in that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def command_lines(block: str) -> list[str]:
    """The commands of a shell block, one a line, without comments."""
    return [line for line in (line.split(" #")[0].strip() for line in block.splitlines()) if line]


def inline_commands(path: Path) -> list[str]:
    """The commands of this project that a Markdown file quotes in running text, each once."""
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return list(dict.fromkeys(re.findall(r"`((?:dspark|make) [^`]+)`", prose)))


def placed_example(
    document: Path, module: str, settings: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """The one module of a document, imported from the documented place in an empty working folder.

    Args:
        document: has one block of Python and one of YAML.
        module: the documented file of the first.
        settings: the documented file of the second.
        folder: becomes the working folder.
        monkeypatch: undoes it.
    """
    (source,), (yaml_text,) = blocks(document, "python"), blocks(document, "yaml")
    for name, text in ((module, source), (settings, yaml_text)):
        assert f"`{name}`" in document.read_text()
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    dotted = module.removesuffix(".py").replace("/", ".")
    for name in (dotted.split(".")[0], dotted):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(dotted)


def run_shortened(command: str, substitutes: dict[str, Path] | None = None) -> int:
    """The exit code of a documented `dspark ...`, run in this process with ``SHORTENED`` appended.

    Args:
        command: as documented.
        substitutes: folders of tiny models that stand for documented ones, by word.
    """
    for word, folder in (substitutes or {}).items():
        command = command.replace(f"={word}", f"={folder}")
    program, *arguments = shlex.split(command)
    assert program == "dspark", command
    own = {
        **{"audit": SHORT_AUDIT, "roofline": SHORT_ROOFLINE, "train": SHORT_TRAIN},
        **dict.fromkeys(("export", "replay", "tune"), ()),  # which run no model
    }
    shortened = own.get(arguments[0], SHORTENED)
    return main([*arguments, *shortened])
