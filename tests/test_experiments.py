"""Every experiment runs, shortened, by the command that its files quote."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest

from dspark.analysis.frames import read_summary, steps_frame
from tests.documents import REPO, blocks, command_lines, run_shortened

RECIPES = {"smoke", "smollm2_dflash", "smollm2_dspark", "smollm2_eagle3"}
"""Of `dspark train`: they make a drafter, and have tests of their own."""
CONFIGS = sorted(
    path for path in (REPO / "configs" / "experiment").glob("*.yaml") if path.stem not in RECIPES
)
experiment = pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)


def _command(config: Path) -> str:
    """The command in the comment at the top of the YAML."""
    lines = config.read_text().splitlines()
    head = [line for line in lines[: lines.index("defaults:")] if line.startswith("# dspark ")]
    assert len(head) == 1, f"{config.name} must quote one command in a comment at its top"
    return head[0].removeprefix("# ")


def test_there_are_experiments() -> None:
    assert CONFIGS


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipe_quotes_its_command(name: str) -> None:
    assert _command(REPO / "configs" / "experiment" / f"{name}.yaml") == f"dspark train experiment={name}"


@experiment
def test_experiment_runs(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = _command(config)
    assert f"experiment={config.stem}" in shlex.split(command)
    assert run_shortened(command) == 0
    (path,) = tmp_path.rglob("summary.json")
    summary = read_summary(path.parent)
    assert summary["complete"]
    steps = steps_frame(path.parent)
    assert steps.groupby("cell").size().min() >= 2
    assert steps["cell"].nunique() == len(summary["rows"])


@experiment
def test_experiment_has_its_page(config: Path) -> None:
    page = REPO / "experiments" / config.stem / "README.md"
    quoted = [line for block in blocks(page, "bash") for line in command_lines(block)]
    assert _command(config) in quoted
    index = (REPO / "experiments" / "README.md").read_text()
    assert f"`{_command(config)}`" in index
    for heading in ("## Question", "## Command", "## Result", "## What it shows", "## What it does not show"):
        assert f"\n{heading}\n" in page.read_text(), heading


def test_breadth_and_depth_crosses_every_policy_with_every_batch_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_shortened("dspark compare experiment=e01_breadth_and_depth") == 0
    (path,) = tmp_path.rglob("summary.json")
    rows = json.loads(path.read_text())["rows"]
    policies = ["fixed 0", "fixed 2", "fixed 4", "fixed 8", "batch_table", "confidence"]
    assert Counter(row["policy"] for row in rows) == dict.fromkeys(policies, 5)
    assert sorted({row["batch_size"] for row in rows}) == [1, 2, 4, 8, 16]
    assert {(row["verification"], row["drafter"], row["temperature"]) for row in rows} == {
        ("greedy", "ngram", 0.0)
    }
    assert all(row["ratio_to_plain"] == 1 for row in rows if row["policy"] == "fixed 0")
