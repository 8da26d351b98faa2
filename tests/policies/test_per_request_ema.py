"""Per-row depth by the average of accepted lengths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dspark.policies.per_request_ema import PerRequestEma
from dspark.types import Verdict
from tests.policies.closed_loop import at_most, coin_flips, depths, run

QUICK = {"weight": 1.0}  # the average is the last accepted length


def planned(step_context, accept, num_steps, **settings):
    return depths(run(PerRequestEma(**{**QUICK, **settings}), [step_context(1)] * num_steps, accept))


def test_four_ways_to_move(step_context):
    # whole drafts: the average is the depth, at least 0.7 of it
    assert planned(step_context, at_most(99), 6, start=2, depth=8) == [2, 3, 4, 5, 6, 7]
    assert planned(step_context, at_most(99), 4, start=2, depth=9, increase="multiplicative") == [2, 4, 8, 9]
    # nothing accepted: 0 is at most 0.4 of any depth
    assert planned(step_context, at_most(0), 5, start=8, depth=8) == [8, 4, 2, 1, 1]
    assert planned(step_context, at_most(0), 5, start=4, depth=8, decrease="additive") == [4, 3, 2, 1, 1]


def test_a_multiplicative_increase_is_a_token_at_least(step_context):
    found = planned(step_context, at_most(99), 3, start=1, depth=8, increase="multiplicative", factor=1.25)
    assert found == [1, 2, 3]


def test_between_the_thresholds_a_row_stays(step_context):
    # 3 accepted of 6: above 0.4 · 6 = 2.4 and below 0.7 · 6 = 4.2
    assert planned(step_context, at_most(3), 4, start=6, depth=8) == [6, 6, 6, 6]
    # 3 of 4 is 0.75: deeper; 3 of 5 is 0.6: stays
    assert planned(step_context, at_most(3), 4, start=4, depth=8) == [4, 5, 5, 5]


def test_the_average_is_an_exponential_one(step_context):
    policy = PerRequestEma(start=4, weight=0.25, grow=0.9, shrink=0.1)
    steps = run(policy, [step_context(1)] * 2, at_most(1))
    first = 4 * (0.9 + 0.1) / 2
    second = first + 0.25 * (1 - first)
    assert steps[1].state.average.tolist() == pytest.approx([second + 0.25 * (1 - second)])


def test_a_loop_over_rows_agrees(step_context):
    policy = PerRequestEma(start=3, depth=7, weight=0.4, step=2)
    ctx, accept = step_context(8), coin_flips(0.75, seed=1)
    expected, averages, state = [3] * 8, [3 * 1.1 / 2] * 8, policy.init(8)
    seen = set()
    for _ in range(80):
        plan = policy.plan(ctx, state)
        assert plan.tolist() == expected
        accepted = accept(plan)
        verdict = Verdict(verify_lengths=plan, accepted=accepted, next_token=accepted)
        state = policy.observe(ctx, verdict, state)
        for row, count in enumerate(accepted.tolist()):
            averages[row] += 0.4 * (count - averages[row])
            if averages[row] >= 0.7 * expected[row]:
                expected[row] = min(7, expected[row] + 2)
            elif averages[row] <= 0.4 * expected[row]:
                expected[row] = max(1, expected[row] // 2)
        seen |= set(expected)
    assert len(seen) >= 4


def test_rows_of_unlike_acceptance_end_at_unlike_depths(step_context):
    good, bad = coin_flips(0.95, seed=1), coin_flips(0.3, seed=2)
    policy, ctx, state = PerRequestEma(), step_context(8), None
    state = policy.init(8)
    total = torch.zeros(8)
    for _ in range(200):
        plan = policy.plan(ctx, state)
        accepted = torch.cat([good(plan[:4]), bad(plan[4:])])
        state = policy.observe(
            ctx, Verdict(verify_lengths=plan, accepted=accepted, next_token=accepted), state
        )
        total += plan
    assert float(total[:4].min()) > 2 * float(total[4:].max())


def test_a_draft_cut_short_and_accepted_whole_is_not_averaged(step_context):
    policy = PerRequestEma(start=6)
    first = policy.init(1)
    cut = run(policy, [step_context(1)], at_most(99), cap=2)[0].state
    assert cut.depth.tolist() == [6]
    assert torch.equal(cut.average, first.average)
    # a rejection in the cut draft is as good as any
    rejected = run(policy, [step_context(1)], at_most(1), cap=2)[0].state
    assert float(rejected.average) < float(first.average)


def test_a_new_row_does_not_inherit(step_context):
    policy = PerRequestEma(start=4, weight=1.0)
    state = run(policy, [step_context(2)] * 3, at_most(0))[-1].state
    ctx = replace(step_context(2), is_new=torch.tensor([False, True]))
    assert policy.plan(ctx, state).tolist() == [1, 4]
    accepted = torch.zeros(2, dtype=torch.int64)
    verdict = Verdict(verify_lengths=policy.plan(ctx, state), accepted=accepted, next_token=accepted)
    assert policy.observe(ctx, verdict, state).depth.tolist() == [1, 2]


def test_the_way_back_from_0(step_context):
    useless = planned(step_context, at_most(0), 12, start=2, min_depth=0, probe_every=3)
    assert useless == [2, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    policy = PerRequestEma(start=2, min_depth=0, probe_every=3, depth=6, weight=1.0)
    state = run(policy, [step_context(1)] * 4, at_most(0))[-1].state
    assert depths(run(policy, [step_context(1)] * 6, at_most(99), state=state)) == [0, 1, 1, 2, 3, 4]


def test_a_probe_that_nothing_was_drafted_for_is_tried_again(step_context):
    policy = PerRequestEma(start=1, min_depth=0, probe_every=2, weight=1.0)
    state = run(policy, [step_context(1)], at_most(0))[-1].state
    assert depths(run(policy, [step_context(1)] * 5, at_most(9), cap=0, state=state)) == [0, 0, 1, 1, 1]


def test_a_minimum_of_1_never_reaches_0(step_context):
    assert 0 not in planned(step_context, at_most(0), 50, start=8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": 9}, r"start must be in \[max\(min_depth, 1\), depth\] = \[1, 8\], got 9"),
        ({"start": 0, "min_depth": 0}, r"= \[1, 8\], got 0"),
        ({"min_depth": 9}, "min_depth must be <= depth=8, got 9"),
        ({"depth": 0}, "depth must be >= 1, got 0"),
        ({"weight": 0.0}, r"weight must be in \(0, 1\], got 0.0"),
        ({"grow": 1.2}, r"grow must be in \(0, 1\], got 1.2"),
        ({"shrink": 0.7}, r"shrink must be in \[0, grow=0.7\), got 0.7"),
        ({"increase": "fast"}, "increase must be additive or multiplicative, got 'fast'"),
        ({"decrease": "fast"}, "decrease must be additive or multiplicative, got 'fast'"),
        ({"step": 0}, "step must be >= 1 token, got 0"),
        ({"factor": 1.0}, "factor must be > 1, got 1.0"),
        ({"probe_every": 0}, "probe_every must be >= 1 step, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PerRequestEma(**settings)
