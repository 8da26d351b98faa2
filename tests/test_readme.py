"""Every command and every line of Python in the README works, and its tables list what there is."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dspark.analysis.report import COLUMNS
from dspark.cli.main import COMMANDS
from dspark.config.build import build_policy
from dspark.config.schema import component
from dspark.types import Completion
from tests.documents import DOCUMENTS, REPO, blocks, command_lines, inline_commands, run_shortened

README = REPO / "README.md"
BLOCKS = [command_lines(block) for block in blocks(README, "bash")]
# a command that resumes needs those before it, so each comes with the commands that lead up to it
SEQUENCES = [
    block[: i + 1] if "resume=true" in block[i] else [block[i]] for block in BLOCKS for i in range(len(block))
]
SEQUENCES += [[command] for command in inline_commands(README) if [command] not in SEQUENCES]
DSPARK = [steps for steps in SEQUENCES if steps[-1].startswith("dspark")]
MAKE = sorted({steps[-1] for steps in SEQUENCES if steps[-1].startswith("make")})


@pytest.fixture
def substitutes(
    tiny_qwen3: Path,
    tiny_llama: Path,
    tiny_llama_drafter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Path]:
    """An empty working folder with a prompt file in it; tiny models for the documented ones."""
    monkeypatch.chdir(tmp_path)
    lines = [
        {"prompt": "one"},
        {"turns": ["two", "three"]},
        {"messages": [{"role": "user", "content": "four"}]},
    ]
    (tmp_path / "prompts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return {"Qwen/Qwen3-0.6B": tiny_qwen3, "org/large": tiny_llama, "org/small": tiny_llama_drafter}


def test_every_command_is_one_that_these_tests_can_run() -> None:
    assert {steps[-1].split()[0] for steps in SEQUENCES} == {"dspark", "make"}
    assert len(DSPARK) > len(COMMANDS)
    languages = set(re.findall(r"^```(\w+)$", README.read_text(), flags=re.MULTILINE))
    assert languages <= {"bash", "python", "text"}


@pytest.mark.parametrize("steps", DSPARK, ids=lambda steps: steps[-1])
def test_dspark_command_runs(
    steps: list[str], substitutes: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in steps:
        assert run_shortened(command, substitutes) == 0, capsys.readouterr().err
    if not re.search(r" --(help|cfg)\b", steps[-1]):
        summaries = [json.loads(path.read_text()) for path in tmp_path.rglob("summary.json")]
        assert summaries
        assert all(summary["complete"] and summary["rows"] for summary in summaries)
    assert capsys.readouterr().out


@pytest.mark.parametrize("command", MAKE)
def test_make_target_exists_and_what_it_starts_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = _recipe(command.split()[1])
    assert recipe, command
    started = [line.split("bin/")[1] for line in recipe if line.startswith(".venv/bin/dspark")]
    monkeypatch.chdir(tmp_path)
    for line in started:
        assert run_shortened(line) == 0, line
    assert bool(started) == (command == "make run")


def _recipe(target: str) -> list[str]:
    """The lines that make would run, whether or not these tests were started by make themselves."""
    env = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(
        ["make", "-n", target], cwd=REPO, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_python_examples_run_on_the_default_model(
    smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = blocks(README, "python")
    written = [line for line in examples[0].splitlines() if line]
    assert len(written) == 10, "the heading promises ten lines"
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), names)
        assert capsys.readouterr().out.strip()
    completion = names["completion"]
    assert isinstance(completion, Completion)
    assert completion.text.startswith(" 6, 7, 8")


def test_policy_table_has_a_row_for_every_policy() -> None:
    rows = _table("name")
    options = {
        path.stem: yaml.safe_load(path.read_text()) for path in (REPO / "configs" / "policy").glob("*.yaml")
    }
    assert rows.keys() == options.keys()
    for name, node in options.items():
        policy = build_policy(component(node, name))
        _, _, lossless_class, signals, source = rows[name]
        assert re.search(rf"\b{policy.lossless_class.value}\b", lossless_class), name
        assert {signal.value for signal in policy.needs} <= set(re.findall(r"`(\w+)`", signals)), name
        assert source.strip(), name


def test_group_table_has_every_group_and_option() -> None:
    listed = {name: set(re.findall(r"`(\w+)`", cells[1])) for name, cells in _table("group").items()}
    configs = REPO / "configs"
    groups = [folder for folder in configs.rglob("*") if folder.is_dir() and any(folder.glob("*.yaml"))]
    options = {
        folder.relative_to(configs).as_posix(): {path.stem for path in folder.glob("*.yaml")}
        for folder in groups
    }
    assert listed == options


def _table(heading: str) -> dict[str, list[str]]:
    """The cells of the README's table whose first column has that heading, by their first cell."""
    rows = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", README.read_text(), flags=re.MULTILINE)
    assert rows is not None, heading
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]
    return {row[0].strip("`| "): row for row in cells}


def test_first_paragraph_says_what_is_and_is_not_here() -> None:
    first = " ".join(README.read_text().split("\n\n")[1].split())
    assert "DSpark is DeepSeek's algorithm" in first
    assert "arXiv 2607.05147" in first
    assert "independent research framework" in first
    for name in ("fixed", "batch_table", "confidence"):
        assert f"`{name}`" in first
    assert not list((REPO / "configs" / "policy").glob("dspark*")), "DSpark is here: say so, and not 'later'"


def test_the_table_in_the_readme_is_the_one_that_is_printed() -> None:
    (excerpt,) = re.findall(
        r"<!-- measured:start -->(.*?)<!-- measured:end -->", README.read_text(), flags=re.DOTALL
    )
    headings = " ".join(re.findall(r"^┃(.*)┃$", excerpt, flags=re.MULTILINE)).replace("┃", " ").split()
    known = " ".join(heading for heading, _, _ in COLUMNS).split()
    assert headings
    assert set(headings) <= set(known)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(REPO).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text())
    local = [link for link in links if not link.startswith(("http://", "https://"))]
    assert [link for link in local if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(REPO).as_posix())
def test_measured_parts_are_marked_from_start_to_end(path: Path) -> None:
    marks = re.findall(r"<!-- measured:(\w+) -->", path.read_text())
    assert marks == ["start", "end"] * (len(marks) // 2)
