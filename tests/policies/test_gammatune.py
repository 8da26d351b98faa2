"""GammaTune: the average accepted length, and a window that opens."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from dspark.policies.gammatune import Gammatune
from dspark.types import Verdict
from tests.policies.closed_loop import at_most, coin_flips, depths, run


def test_full_acceptance_opens_the_window(step_context):
    policy = Gammatune(start=4, depth=9, expand=2)
    assert depths(run(policy, [step_context(1)] * 5, at_most(99))) == [4, 6, 8, 9, 9]


def test_otherwise_the_average_rounded_up_is_the_depth(step_context):
    policy = Gammatune(start=8, depth=24, weight=0.5)
    # averages from 8 with 3 accepted: 5.5, 4.25, 3.625; then 3.3125 for the draft of 4
    assert depths(run(policy, [step_context(1)] * 4, at_most(3))) == [8, 6, 5, 4]
    assert depths(run(policy, [step_context(1)] * 7, at_most(0))) == [8, 4, 2, 1, 1, 1, 1]


def test_a_loop_over_rows_agrees(step_context):
    policy = Gammatune(start=5, depth=12, min_depth=2, weight=0.3, expand=3)
    ctx, accept = step_context(8), coin_flips(0.8, seed=5)
    expected, averages, state = [5] * 8, [5.0] * 8, policy.init(8)
    seen = set()
    for _ in range(80):
        plan = policy.plan(ctx, state)
        assert plan.tolist() == expected
        accepted = accept(plan)
        verdict = Verdict(verify_lengths=plan, accepted=accepted, next_token=accepted)
        state = policy.observe(ctx, verdict, state)
        for row, count in enumerate(accepted.tolist()):
            averages[row] += 0.3 * (count - averages[row])
            wanted = expected[row] + 3 if count == expected[row] else math.ceil(averages[row])
            expected[row] = min(12, max(2, wanted))
        seen |= set(expected)
    assert len(seen) >= 5


def test_a_draft_cut_short_and_accepted_whole_tells_nothing(step_context):
    policy = Gammatune(start=4)
    steps = run(policy, [step_context(1)] * 2, at_most(99), cap=2)
    assert depths(steps) == [4, 4]
    assert steps[-1].state.average.tolist() == [4.0]
    assert depths(run(policy, [step_context(1)] * 2, at_most(99), cap=0)) == [4, 4]
    # a rejection in the cut draft counts: (4 + 1) / 2 rounded up
    assert depths(run(policy, [step_context(1)] * 2, at_most(1), cap=2)) == [4, 3]


def test_a_new_row_does_not_inherit(step_context):
    policy = Gammatune(start=4)
    state = run(policy, [step_context(2)] * 2, at_most(99))[-1].state
    ctx = replace(step_context(2), is_new=torch.tensor([False, True]))
    assert policy.plan(ctx, state).tolist() == [8, 4]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": 30}, "1 <= min_depth <= start <= depth, got min_depth=1, start=30, depth=24"),
        ({"min_depth": 0}, "got min_depth=0, start=4, depth=24"),
        ({"weight": 0.0}, r"weight must be in \(0, 1\], got 0.0"),
        ({"expand": 0}, "expand must be >= 1 token, got 0"),
        ({"depth": -1}, "depth must be >= 0, got -1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Gammatune(**settings)
