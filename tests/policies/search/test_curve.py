"""The curve of throughput asks the cost model for what the step would be."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dspark.cost.linear import LinearCost
from dspark.policies.search import cached_tokens, rank, throughput

SURVIVAL, LENGTHS = torch.tensor([[0.5, 0.25], [0.75, 0.5]]), torch.tensor([2, 2])
PARTS = {
    "target_fixed_s": 1.0,
    "target_kv_s": 0.001,
    "target_token_s": 0.25,
    "target_row_s": 0.5,
    "draft_fixed_s": 2.0,
    "draft_depth_s": 0.125,
    "overhead_s": 0.0625,
}


def test_every_number_of_tokens_has_its_expected_tokens_and_seconds(step_context):
    ctx = dataclasses.replace(step_context(2), cost=LinearCost(**PARTS))
    cached = int((ctx.context_lengths - 1).sum())  # the last committed token is the pass's first
    assert int(cached_tokens(ctx)) == cached == 2 * 99 + 7
    step_s = 1 + 0.001 * cached + 0.5 * 2 + 2 + 0.125 * 3 + 0.0625  # a step of depth 3, but for its tokens
    seconds = [step_s + 0.25 * (2 + n) for n in range(5)]
    expected = [2, 2.75, 3.25, 3.75, 4]
    curve = throughput(ctx, rank(SURVIVAL, LENGTHS), torch.tensor(3))
    assert curve.tolist() == pytest.approx([e / s for e, s in zip(expected, seconds, strict=True)])
    accepted = throughput(ctx, rank(SURVIVAL, LENGTHS), torch.tensor(3), with_bonus=False)
    assert accepted.tolist() == pytest.approx([(e - 2) / s for e, s in zip(expected, seconds, strict=True)])


def test_without_a_cost_model_there_is_no_curve(step_context):
    ctx = dataclasses.replace(step_context(2), cost=None)
    with pytest.raises(AssertionError, match="cost model"):
        throughput(ctx, rank(SURVIVAL, LENGTHS), torch.tensor(3))
