"""SglangThroughput: the score, when it decides, hysteresis, and its way back."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dspark.cost.constant import ConstantCost
from dspark.cost.published import published_cost
from dspark.policies.sglang_throughput import SglangThroughput
from dspark.types import LosslessClass, Verdict
from tests.policies.listed_cost import ListedCost
from tests.policies.timed import bar_s, fastest_s

FREE = ConstantCost(target_s=1.0, draft_s_per_token=0.0)
DEAR = ConstantCost(target_s=1.0, draft_s_per_token=5.0)


def verdict_of(verified: list[int], accepted: list[int]) -> Verdict:
    counts = torch.tensor(accepted)
    return Verdict(verify_lengths=torch.tensor(verified), accepted=counts, next_token=counts)


@pytest.fixture(scope="module")
def run(step_context):
    """Depths of a run: each step's (rows, cost, accepted tokens of a row that verifies the plan)."""

    def depths(policy: SglangThroughput, steps) -> list[int]:
        state, found = policy.init(64), []
        for step, (num_rows, cost, accepts) in enumerate(steps):
            ctx = dataclasses.replace(step_context(num_rows, num_slots=64, step=step), cost=cost)
            plan = policy.plan(ctx, state)
            assert len(set(plan.tolist())) == 1
            found.append(int(plan[0]))
            accepted = plan.clamp(max=accepts)
            state = policy.observe(ctx, verdict_of(plan.tolist(), accepted.tolist()), state)
        return found

    return depths


def test_the_score_is_expected_tokens_over_seconds(step_context):
    """Four rows at depth 3 accept 3, 2, 2 and 0: p = 3/4, 3/4, 1/4, falling by sqrt(1/3) a position after."""
    policy = SglangThroughput(depths=[0, 1, 3, 5], window=4)
    seconds = [float(n) for n in range(30)]
    ctx = dataclasses.replace(step_context(4), cost=ListedCost(seconds=seconds))
    state = policy.observe(ctx, verdict_of([3] * 4, [3, 2, 2, 0]), policy.init(4))
    ratio = (1 / 3) ** 0.5
    expected = [1, 1.75, 2.75, 2.75 + 0.25 * ratio + 0.25 * ratio**2]
    scores = policy.scores(ctx, state)
    assert scores.tolist() == pytest.approx(
        [e / (4 * (1 + s)) for e, s in zip(expected, [0, 1, 3, 5], strict=True)]
    )


def test_it_starts_in_the_middle_and_decides_when_the_window_is_full(run):
    policy = SglangThroughput(depths=[0, 1, 3, 5, 7], window=6, interval=4)
    # all is accepted and free: up to 7 once six steps have drafted, four of which are over by then
    assert run(policy, [(2, FREE, 7)] * 10) == [3] * 6 + [7] * 4


def test_after_a_rise_the_new_positions_are_awaited(run):
    """At 5 only one token is accepted: seen after a window, not after an interval."""
    policy = SglangThroughput(depths=[1, 2, 5], window=6, interval=2, hysteresis=0.0)
    cost = ConstantCost(target_s=1.0, draft_s_per_token=0.1)
    steps = [(2, cost, 2)] * 6 + [(2, cost, 1)] * 12
    # p falls by nothing at first, so 5 promises 6 tokens in 1.5 s; its window shows 2 tokens, and 1 is best
    assert run(policy, steps) == [2] * 6 + [5] * 6 + [1] * 6


def test_the_batch_at_hand_counts_when_a_decision_is_due(run):
    """Ten tokens are free: one row speculates, and eight do not, on the same acceptance."""
    cost = ListedCost(seconds=[1.0] * 11 + [1.0 + n for n in range(100)])
    policy = SglangThroughput(depths=[0, 3], window=1, interval=5, hysteresis=0.0)
    assert run(policy, [(1, cost, 3)] * 7 + [(8, cost, 3)] * 5) == [3] * 10 + [0] * 2


@pytest.mark.parametrize(("hysteresis", "depth"), [(0.0, 3), (0.2, 3), (0.3, 1)])
def test_another_depth_must_be_better_by_the_hysteresis(hysteresis, depth, run):
    """Depth 3 scores 4 / 1.6 = 2.5, depth 1 2 / 1 = 2.0: a quarter less."""
    cost = ListedCost(seconds=[1.0, 1.0, 1.0, 1.6, 1.6])
    policy = SglangThroughput(depths=[0, 1, 3], window=1, interval=1, hysteresis=hysteresis)
    assert run(policy, [(1, cost, 9)] * 4)[-1] == depth


def test_the_way_back_from_depth_0(run):
    """What was too dear is cheap again, or drafts are accepted again: decisions and probes see it."""
    policy = SglangThroughput(depths=[0, 1, 3], window=2, interval=2, probe_every=4)
    dear_then_free = run(policy, [(2, DEAR, 3)] * 12 + [(2, FREE, 3)] * 6)
    assert dear_then_free[2:12].count(0) >= 8
    assert dear_then_free[-1] == 3
    bad_then_good = run(policy, [(2, ConstantCost(target_s=1.0, draft_s_per_token=0.2), 0)] * 14)
    start = bad_then_good.index(0)
    assert bad_then_good[start : start + 10] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    costs = ConstantCost(target_s=1.0, draft_s_per_token=0.2)
    assert run(policy, [(2, costs, 0)] * 14 + [(2, costs, 3)] * 30)[-1] == 3


def test_an_empty_batch_changes_nothing(step_context):
    policy = SglangThroughput()
    state = policy.init(4)
    assert policy.plan(step_context(0), state).tolist() == []
    assert policy.observe(step_context(0), verdict_of([], []), state) is state


def test_it_is_class_a_and_as_deep_as_its_deepest_candidate():
    policy = SglangThroughput(depths=[0, 2, 6])
    assert policy.lossless_class is LosslessClass.FIXED
    assert policy.max_depth == 6
    assert policy.needs_cost


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depths": []}, r"depths must ascend, one or more, got \[\]"),
        ({"depths": [1, 1]}, "depths must ascend"),
        ({"depths": [3, 1]}, "depths must ascend"),
        ({"depths": [-1, 1]}, "each of depths must be >= 0, got -1"),
        ({"window": 0}, "window must be >= 1 steps, got 0"),
        ({"interval": 0}, "interval must be >= 1 steps, got 0"),
        ({"hysteresis": -0.1}, "hysteresis must be >= 0, got -0.1"),
        ({"probe_every": 0}, "probe_every must be >= 1 steps, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SglangThroughput(**settings)


def test_a_decision_for_256_rows_takes_less_than_a_millisecond(step_context):
    policy = SglangThroughput(depths=list(range(9)), window=1, interval=1)
    ctx = dataclasses.replace(step_context(256), cost=published_cost("illusion-llama3.1-8b-h100-ngram"))
    state = policy.observe(ctx, verdict_of([4] * 256, [2] * 256), policy.init(256))
    assert fastest_s(lambda: policy.plan(ctx, state)) <= bar_s(1e-3)
