"""Policies that decide before drafting decide in a millisecond, with their history behind them."""

from __future__ import annotations

import pytest
import torch

from dspark.types import Draft, Verdict
from tests.policies.catalogue_a import POLICIES
from tests.policies.timed import bar_s, fastest_s

ROWS, DEPTH = 256, 8


@pytest.mark.parametrize("policy", [policy for policy, *_ in POLICIES.values()], ids=POLICIES.keys())
def test_a_decision_for_256_rows_takes_less_than_a_millisecond(policy, step_context):
    ctx = step_context(ROWS)
    state = policy.init(ROWS)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        plan = policy.plan(ctx, state).clamp(max=DEPTH)
        accepted = (torch.rand(ROWS, generator=generator) * (plan + 1)).long()
        judged = torch.arange(DEPTH) < plan[:, None]
        divergence = torch.rand((ROWS, DEPTH), generator=generator).where(judged, torch.nan)
        verdict = Verdict(
            verify_lengths=plan,
            accepted=accepted,
            next_token=accepted,
            step_time_s=0.01,
            draft=Draft(tokens=torch.zeros((ROWS, DEPTH), dtype=torch.int64), lengths=plan, q=None),
            divergence=divergence,
        )
        state = policy.observe(ctx, verdict, state)
    assert fastest_s(lambda: policy.plan(ctx, state)) <= bar_s(1e-3)
    assert fastest_s(lambda: policy.observe(ctx, verdict, state)) <= 2e-3
