"""transformers' schedules, a row at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dspark.policies.hf_heuristic import HfHeuristic
from dspark.types import Verdict
from tests.policies.closed_loop import at_most, coin_flips, depths, run


def test_two_deeper_after_a_whole_draft_one_less_otherwise_never_below_1(step_context):
    policy = HfHeuristic(start=3, depth=8)
    # 6 tokens are acceptable: 3, 5 whole; 7 not, 6 whole, 8 (the largest) not, 7 not, 6 whole
    assert depths(run(policy, [step_context(1)] * 8, at_most(6))) == [3, 5, 7, 6, 8, 7, 6, 8]
    assert depths(run(policy, [step_context(1)] * 5, at_most(0))) == [3, 2, 1, 1, 1]


def test_a_loop_over_rows_agrees(step_context):
    policy = HfHeuristic(start=2, depth=9)
    ctx, accept = step_context(6), coin_flips(0.7, seed=3)
    expected, state = [2] * 6, policy.init(6)
    for _ in range(60):
        plan = policy.plan(ctx, state)
        assert plan.tolist() == expected
        accepted = accept(plan)
        state = policy.observe(
            ctx, Verdict(verify_lengths=plan, accepted=accepted, next_token=accepted), state
        )
        expected = [
            min(9, depth + 2) if count == depth else max(1, depth - 1)
            for depth, count in zip(expected, accepted.tolist(), strict=True)
        ]


def test_a_row_in_which_nothing_was_verified_keeps_its_depth(step_context):
    policy = HfHeuristic(start=4, depth=8)
    assert depths(run(policy, [step_context(1)] * 4, at_most(9), cap=0)) == [4] * 4


def test_a_short_draft_accepted_whole_counts_as_whole(step_context):
    policy = HfHeuristic(start=4, depth=8)
    assert depths(run(policy, [step_context(1)] * 3, at_most(9), cap=2)) == [4, 6, 8]


@pytest.mark.parametrize(
    ("schedule", "after"), [("heuristic", 6), ("heuristic_transient", 4), ("constant", 4)]
)
def test_what_a_new_request_starts_from(schedule, after, step_context):
    policy = HfHeuristic(schedule=schedule, start=4, depth=8)
    state = run(policy, [step_context(2)], at_most(9))[-1].state
    ctx = step_context(2)
    ctx = replace(ctx, is_new=torch.tensor([True, False]))
    goes_on = 4 if schedule == "constant" else 6
    assert policy.plan(ctx, state).tolist() == [after, goes_on]


def test_a_constant_schedule_sizes_buffers_by_its_start():
    assert HfHeuristic(schedule="constant", start=5, depth=20).max_depth == 5
    assert HfHeuristic(start=5, depth=20).max_depth == 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "linear"}, "schedule must be one of heuristic, .* got 'linear'"),
        ({"start": 0}, r"start must be in \[1, depth=20\], got 0"),
        ({"start": 9, "depth": 8}, r"start must be in \[1, depth=8\], got 9"),
        ({"depth": -1}, "depth must be >= 0, got -1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HfHeuristic(**settings)
