"""A threshold on a trace, and a live run held against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.analysis.replay.run import replay
from dspark.cost.constant import ConstantCost
from dspark.metrics.definitions import acceptance_rate
from dspark.metrics.trace import read_jsonl, step_from_json
from dspark.policies.confidence import Confidence
from dspark.types import Signal

if TYPE_CHECKING:
    from pathlib import Path

    from dspark.analysis.replay.record import Replay
    from dspark.analysis.replay.trace import AcceptanceTrace

FIELDS = ("planned", "drafted", "verified", "accepted", "emitted", "context")
COST = ConstantCost(draft_s_per_token=0.0, target_s=1.0)
"""A replay wants seconds; none of them are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a threshold does."""

    threshold: float
    rate: float | None  # accepted / verified tokens; None where nothing was verified
    verified: float  # tokens a row-step
    length: float  # emitted tokens a row-step, also of those without drafts


def swept(trace: AcceptanceTrace, threshold: float, depth: int) -> Point:
    """The point of a threshold, all requests in one batch."""
    totals = _replayed(trace, threshold, depth, trace.num_requests).totals()
    return Point(
        threshold=threshold,
        rate=acceptance_rate(totals),
        verified=totals.verified / totals.num_row_steps,
        length=totals.emitted / totals.num_row_steps,
    )


def num_differing(
    run: Path, trace: AcceptanceTrace, threshold: float, depth: int, *, batch_size: int
) -> tuple[int, int]:
    """Row-steps of a live run that differ from the replay, or have no partner, and row-steps of the run."""
    steps = [step_from_json(item) for item in read_jsonl(run / "steps.jsonl")]
    live = [tuple(getattr(row, name) for name in FIELDS) for step in steps for row in step.rows]
    rows = _replayed(trace, threshold, depth, batch_size).rows
    ours = list(zip(*(rows[name].tolist() for name in FIELDS), strict=True))
    same = sum(one == other for one, other in zip(live, ours, strict=False))
    return max(len(live), len(ours)) - same, len(live)


def _replayed(trace: AcceptanceTrace, threshold: float, depth: int, batch_size: int) -> Replay:
    policy = Confidence(
        depth=depth, threshold=threshold, signal=Signal.CONFIDENCE.value, survival=False, stop="before"
    )
    return replay(trace, policy, batch_size=batch_size, cost=COST)
