"""Every experiment of `dspark reproduce` runs shortened, claims what it declares, and has its page."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from experiments.e10_performance_or_illusion.published import file_of
from experiments.reproduce import REPO, registry
from experiments.reproduce.claims import Status
from experiments.reproduce.result import Result
from tests.documents import blocks, command_lines
from tests.experiments.conftest import Shortened
from tests.experiments.stand_ins import run

NAMES = registry.names()
REPLAY = "e10_performance_or_illusion"
"""The one whose shortened run is given data."""

EXACT = {"e03_selection_bias", "e11_leviathan"}
"""Those whose shortened runs must give the paper's numbers too: nothing in them is measured or drawn."""

HEADINGS = ("Question", "Command", "Result", "What it shows", "What it does not show")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small file in the format of the published traces."""
    folder, rng = tmp_path_factory.mktemp("traces"), random.Random(0)
    lines = []
    for number in range(4):
        counts = [{"acc_len": [rng.randint(1, 6) for _ in range(30)]} for _ in range(2)]
        item = {"id": number, "prompt_token_ids": [0] * 40, "acc_eagle": counts[0], "acc_ngram": counts[1]}
        lines.append(json.dumps(item) + "\n")
    (folder / file_of("gsm8k")).write_text("".join(lines))
    return folder


def _replayed(out: Path, traces: Path) -> Result:
    (result,) = run(out, registry.load(REPLAY), quick=True, settings={"traces": str(traces)})
    return result


def test_there_are_experiments() -> None:
    assert {name[:3] for name in NAMES} >= {"e01", "e03", "e10", "e11"}
    assert len({name[:3] for name in NAMES}) == len(NAMES), "a number stands for one"


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_claims_what_it_declares(
    name: str, tmp_path: Path, traces: Path, shortened: Shortened
) -> None:
    result = _replayed(tmp_path, traces) if name == REPLAY else shortened(name)[0]
    assert result.error is None, result.error
    assert [claim.what for claim in result.claims] == [claim.what for claim in registry.load(name).claims]
    if result.not_run is None:
        assert any(claim.status is not Status.NOT_RUN for claim in result.claims)
        assert result.notes
    if name in EXACT:
        assert result.verdict == "reproduced", [c for c in result.claims if c.status is Status.NOT_REPRODUCED]


def test_all_together_fit_into_45_minutes() -> None:
    assert sum(registry.load(name).minutes for name in NAMES) <= 45


@pytest.mark.parametrize("name", NAMES)
def test_it_has_its_page_and_its_line(name: str) -> None:
    page = REPO / "experiments" / name / "README.md"
    quoted = [line for block in blocks(page, "bash") for line in command_lines(block)]
    assert any(re.match(rf"dspark reproduce {name[:3]}\b", line) for line in quoted), quoted
    for heading in HEADINGS:
        assert f"\n## {heading}\n" in page.read_text(), heading
    index = (REPO / "experiments" / "README.md").read_text()
    assert f"[{name}]({name}/README.md)" in index


def test_without_traces_the_replay_is_not_run_and_says_why(tmp_path: Path) -> None:
    result = _replayed(tmp_path / "out", tmp_path / "nowhere")
    assert result.verdict == "not run here"
    assert "give traces=DIR" in result.summary
    assert all(claim.note == result.summary for claim in result.claims)
