"""What a live run saw, replayed: the same depth at any batch size is the run at that batch size."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark.analysis.replay.files import read_trace, write_trace
from dspark.analysis.replay.hindsight import Hindsight
from dspark.analysis.replay.run import Replayer, replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.analysis.replay.visited import read_visited
from dspark.analysis.tuning import TuneSettings, tune
from dspark.cli.main import main
from dspark.cost.published import published_cost
from dspark.metrics.trace import read_jsonl, step_from_json
from dspark.policies.fixed import Fixed
from dspark.types import StepRecord
from tests.analysis.replay.tools import assert_same

COST = "illusion-llama3.1-8b-h100-eagle"
SETTINGS = (
    *("tracker=none", "workload.num_requests=7", "sampling.max_new_tokens=14", "engine.prefill_chunk=150"),
    *("engine.clock=modelled", "cost=published", f"cost.name={COST}"),
)
Run = Callable[..., Path]


@pytest.fixture(scope="module")
def run(tiny_llama: Path, tiny_llama_drafter: Path) -> Run:
    """Runs a command into a folder: a random target, and a drafter that is right now and then."""
    models = ("target=pretrained", f"target.source={tiny_llama}")
    models += ("drafter=draft_model", f"drafter.source={tiny_llama_drafter}")

    def ran(folder: Path, command: str, *settings: str) -> Path:
        assert main([command, *models, *SETTINGS, *settings, f"hydra.run.dir={folder}"]) == 0
        return folder

    return ran


@pytest.fixture(scope="module")
def compared(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Depths 0 and 3 at batch sizes 1, 3 and 16."""
    folder = tmp_path_factory.mktemp("visited") / "compare"
    policies = "compare.policies=[fixed 0,fixed 3,confidence]"
    return run(folder, "compare", policies, "compare.batch_sizes=[1,3,16]", "verification=greedy")


@pytest.fixture
def copied(compared: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(compared, tmp_path / "copy"))


def _live(folder: Path, cell: str) -> list[StepRecord]:
    return [step_from_json(item) for item in read_jsonl(folder / "steps.jsonl") if item["cell"] == cell]


def _cell(depth: int, batch_size: int) -> str:
    return f"fixed {depth}/batch {batch_size}/repeat 0"


@pytest.mark.parametrize("seen_at", [1, 3, 16])
def test_a_replay_is_the_run_at_every_batch_size(compared: Path, seen_at: int) -> None:
    trace = read_visited(compared, _cell(3, seen_at))
    assert trace.depth == 3
    for batch_size in (1, 3, 16):
        for depth in (3, 0):
            done = replay(
                trace,
                Fixed(depth=depth),
                batch_size=batch_size,
                cost=published_cost(COST),
                prefill_chunk=150,
            )
            assert_same(_live(compared, _cell(depth, batch_size)), done)


def test_something_was_accepted_between_the_positions_that_are_known(compared: Path) -> None:
    trace = read_visited(compared, _cell(3, 1))
    rounds = sum(len(step.rows) for step in _live(compared, _cell(3, 1)))
    assert 0 < trace.accepted.sum() < trace.drafted.sum()
    assert rounds < trace.num_positions, "a run visits fewer positions than there are"


def test_a_sampled_run_of_the_coupled_rule_that_was_stopped_and_resumed(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = ("policy=fixed", "policy.depth=3", "engine.max_batch_size=3", "sampling.temperature=0.8")
    run(folder, "run", *settings, "verification=coupled")
    whole = read_visited(folder)
    outputs = folder / "outputs.jsonl"
    outputs.write_text("".join(line + "\n" for line in outputs.read_text().splitlines()[:2]))
    run(folder, "run", *settings, "verification=coupled", "resume=true")
    resumed = read_visited(folder)
    assert {item["attempt"] for item in read_jsonl(folder / "steps.jsonl")} == {0, 1}
    assert set(resumed.request_ids) == set(whole.request_ids)
    order = [resumed.request_ids.index(name) for name in whole.request_ids]
    again = resumed.of(order)
    for name in ("prompt_tokens", "output_tokens", "max_tokens", "drafted", "accepted"):
        assert getattr(again, name).tolist() == getattr(whole, name).tolist(), name


def test_the_file_of_a_trace_keeps_what_is_not_known(compared: Path, tmp_path: Path) -> None:
    trace = read_visited(compared, _cell(3, 3))
    again = read_trace(write_trace(trace, tmp_path / "trace.parquet"))
    assert again.visited_only
    assert again.of([0]).visited_only
    assert again.drafted.tolist() == trace.drafted.tolist()


@pytest.mark.parametrize(
    ("asker", "ask"),
    [
        ("Fixed", lambda trace: replay(trace, Fixed(depth=2), batch_size=2, cost=published_cost(COST))),
        (
            "Hindsight",
            lambda trace: Replayer(trace, Hindsight(depth=2), batch_size=2, cost=published_cost(COST)),
        ),
        (
            "tuning",
            lambda trace: tune(trace, published_cost(COST), TuneSettings(batch_sizes=(1,), max_batch_size=1)),
        ),
    ],
)
def test_what_would_need_other_positions_is_refused(
    compared: Path, asker: str, ask: Callable[[AcceptanceTrace], object]
) -> None:
    with pytest.raises(ValueError, match=f"{asker} needs every position.*: replay fixed 3 or fixed 0, or"):
        ask(read_visited(compared, _cell(3, 1)))


def _edit(path: Path, change: Callable[[dict], dict | None]) -> None:
    items = [change(item) for item in read_jsonl(path)]
    path.write_text("".join(json.dumps(item) + "\n" for item in items if item is not None))


def test_cells_that_are_not_there_or_do_not_tell(compared: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has the cells fixed 0/batch 1/repeat 0, .* got None: name one"):
        read_visited(compared)
    with pytest.raises(ValueError, match="got 'fixed 9': name one of them"):
        read_visited(compared, "fixed 9")
    with pytest.raises(ValueError, match="only one with a fixed depth can be replayed, got 'confidence'"):
        read_visited(compared, "confidence/batch 1/repeat 0")
    with pytest.raises(ValueError, match="has no steps: give the folder of"):
        read_visited(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"verification": "rejection", "temperature": 0.7},
            "under verification rejection at temperature 0.7",
        ),
        ({"verification": "synthetic", "lossless": False}, "under verification synthetic at temperature 0"),
        ({"verification": "rejection"}, None),  # greedy by another name
    ],
)
def test_texts_that_depend_on_drafts(copied: Path, changes: dict, message: str | None) -> None:
    _edit(copied / "cells.jsonl", lambda item: {**item, "row": {**item["row"], **changes}})
    if message is None:
        assert read_visited(copied, _cell(3, 1)).origin["verification"] == "rejection"
        return
    with pytest.raises(ValueError, match=message):
        read_visited(copied, _cell(3, 1))


def test_a_cell_that_has_not_ended(copied: Path) -> None:
    _edit(copied / "cells.jsonl", lambda item: None if item["cell"] == _cell(3, 1) else item)
    with pytest.raises(ValueError, match="has not ended: resume it with resume=true"):
        read_visited(copied, _cell(3, 1))


def test_missing_steps_and_cut_drafts_are_noticed(copied: Path) -> None:
    steps = copied / "steps.jsonl"
    whole = steps.read_text()
    at = [i for i, item in enumerate(read_jsonl(steps)) if item["cell"] == _cell(3, 1)][2]
    lines = whole.splitlines(keepends=True)
    steps.write_text("".join(lines[:at] + lines[at + 1 :]))
    with pytest.raises(ValueError, match="steps.jsonl lacks rounds of request"):
        read_visited(copied, _cell(3, 1))

    def cut(item: dict) -> dict:
        rows = item["rows"]
        if item["cell"] == _cell(3, 1):
            rows["allowed"] = [min(allowed, 2) for allowed in rows["allowed"]]
        return item

    steps.write_text(whole)
    _edit(steps, cut)
    with pytest.raises(ValueError, match="allowed drafts of 3 by the depth of 3 .* got planned 3, allowed 2"):
        read_visited(copied, _cell(3, 1))


def test_a_request_of_one_token_hides_its_prompt(run: Run, tmp_path: Path) -> None:
    folder = run(tmp_path / "run", "run", "policy=fixed", "policy.depth=3", "sampling.max_new_tokens=1")
    with pytest.raises(ValueError, match="ended with its first token, so no round tells how long its prompt"):
        read_visited(folder)


def test_a_recording_has_a_better_trace(run: Run, tmp_path: Path) -> None:
    folder = run(tmp_path / "record", "record")
    with pytest.raises(ValueError, match="is of `dspark record`: read its trace.parquet"):
        read_visited(folder)
