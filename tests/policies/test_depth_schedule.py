"""The schedule's depths come one a full step, in their order, and 0 otherwise."""

from __future__ import annotations

import pytest
import torch

from dspark.policies.depth_schedule import DepthSchedule
from dspark.types import LosslessClass, StepContext, Verdict


def context(num_rows: int, num_slots: int = 2) -> StepContext:
    rows = torch.arange(num_rows)
    many = torch.full_like(rows, 100)
    return StepContext(
        step=0,
        slots=rows,
        is_new=rows < 0,
        context_lengths=many,
        remaining_tokens=many,
        depth_caps=many,
        num_slots=num_slots,
        cost=None,
    )


def verdict(num_rows: int) -> Verdict:
    nothing = torch.zeros(num_rows, dtype=torch.int64)
    return Verdict(verify_lengths=nothing, accepted=nothing, next_token=nothing)


def test_depths_come_in_order_in_full_steps() -> None:
    policy = DepthSchedule(depths=(3, 0, 5))
    state, seen = policy.init(2), []
    for num_rows in (1, 2, 2, 1, 2, 2):
        ctx = context(num_rows)
        seen.append(policy.plan(ctx, state).tolist())
        state = policy.observe(ctx, verdict(num_rows), state)
    assert seen == [[0], [3, 3], [0, 0], [0], [5, 5], [0, 0]]
    assert state == 3
    assert policy.max_depth == 5
    assert policy.lossless_class is LosslessClass.FIXED


def test_what_is_no_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="depth must be >= 0, got -1"):
        DepthSchedule(depths=(1, -1))
