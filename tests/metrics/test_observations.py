"""What is written of a step is what is read, for the attempt that finished each request."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from dspark.metrics.observations import (
    observation_from_json,
    observation_to_json,
    read_observations,
)
from dspark.types import Draft, Signal, StepContext, Verdict

if TYPE_CHECKING:
    from pathlib import Path

NAN = float("nan")
NAMES = ("a", "b", "c")


def context(step: int = 7) -> StepContext:
    return StepContext(
        step=step,
        slots=torch.tensor([4, 0, 2]),
        is_new=torch.tensor([False, True, False]),
        context_lengths=torch.tensor([30, 10, 20]),
        remaining_tokens=torch.tensor([5, 6, 7]),
        depth_caps=torch.tensor([9, 9, 1]),
        num_slots=5,
        cost=None,
    )


def verdict(draft: Draft | None) -> Verdict:
    lengths = torch.zeros(3, dtype=torch.int64) if draft is None else draft.lengths
    return Verdict(
        verify_lengths=lengths,
        accepted=torch.minimum(lengths, torch.tensor([2, 0, 0])),
        next_token=torch.tensor([11, 12, 13]),
        draft=draft,
    )


def drafted(margin: float = 3.0) -> Draft:
    top1 = torch.tensor([[0.1, 0.2, 0.3], [0.4, NAN, NAN], [NAN, NAN, NAN]])
    return Draft(
        tokens=torch.tensor([[1, 2, 3], [4, -1, -1], [-1, -1, -1]]),
        lengths=torch.tensor([3, 1, 0]),
        q=None,
        signals={Signal.TOP1_PROBABILITY: top1, Signal.MARGIN: top1 * 0 + margin},
    )


def stored(item: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(item, allow_nan=False))


def test_a_step_is_read_as_it_was_written() -> None:
    draft, ctx = drafted(), context()
    item = stored(observation_to_json(NAMES, ctx, verdict(draft), attempt=0))
    found = observation_from_json(item, keep=[0, 1, 2])
    assert found.request_ids == NAMES
    for name in ("slots", "is_new", "context_lengths", "remaining_tokens", "depth_caps"):
        assert torch.equal(getattr(found.ctx, name), getattr(ctx, name))
        assert getattr(found.ctx, name).dtype == getattr(ctx, name).dtype
    assert (found.ctx.step, found.ctx.num_slots, found.ctx.cost) == (7, 5, None)
    assert found.verdict.verify_lengths.tolist() == [3, 1, 0]
    assert found.verdict.accepted.tolist() == [2, 0, 0]
    assert found.verdict.draft is not None
    assert found.verdict.draft.lengths.tolist() == [3, 1, 0]
    for signal, values in draft.signals.items():
        read = found.verdict.draft.signals[signal]
        assert read.dtype == torch.float64
        torch.testing.assert_close(read, values.double(), rtol=0, atol=0, equal_nan=True)


def test_some_rows_of_a_step() -> None:
    item = stored(observation_to_json(NAMES, context(), verdict(drafted()), attempt=0))
    found = observation_from_json(item, keep=[1, 2])
    assert found.request_ids == ("b", "c")
    assert found.ctx.slots.tolist() == [0, 2]
    assert found.verdict.draft is not None
    assert found.verdict.draft.signals[Signal.TOP1_PROBABILITY].shape == (2, 1), "no wider than the rows"


def test_a_step_without_drafts() -> None:
    item = stored(observation_to_json(NAMES, context(), verdict(None), attempt=0))
    assert observation_from_json(item, keep=[0, 1, 2]).verdict.draft is None
    kept = observation_to_json(NAMES, context(), verdict(drafted()), attempt=0)
    assert observation_from_json(stored(kept), keep=[2]).verdict.draft is None, "the one row drafted nothing"


def test_an_infinite_margin_is_the_largest_number() -> None:
    item = stored(observation_to_json(NAMES, context(), verdict(drafted(math.inf)), attempt=0))
    assert item["signals"]["margin"][0] == [sys.float_info.max] * 3


def _write(folder: Path, observations: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> None:
    for name, items in (("observations.jsonl", observations), ("outputs.jsonl", outputs)):
        (folder / name).write_text("".join(json.dumps(item) + "\n" for item in items))


def test_only_the_attempt_that_finished_a_request_counts(tmp_path: Path) -> None:
    steps = [
        observation_to_json(NAMES, context(step), verdict(drafted()), attempt=attempt)
        for attempt, step in ((0, 0), (0, 1), (1, 0), (2, 0))
    ]
    ends = [("a", 0), ("b", 1)]  # "c" never ended
    _write(tmp_path, steps, [{"request_id": name, "attempt": attempt} for name, attempt in ends])
    found = read_observations(tmp_path)
    assert [observation.request_ids for observation in found] == [("a",), ("a",), ("b",)]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    step = observation_to_json(NAMES, context(), verdict(drafted()), attempt=0)
    _write(tmp_path, [step, step], [{"request_id": "a", "attempt": 0}])
    path = tmp_path / "observations.jsonl"
    path.write_text(path.read_text()[:-20])
    assert len(read_observations(tmp_path)) == 1


def test_a_folder_without_observations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="make one with `dspark calibrate`"):
        read_observations(tmp_path)
