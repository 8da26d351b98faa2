"""Cascade: test phases, utilities, set phases, refusals and the way back."""

from __future__ import annotations

import pytest

from dspark.policies.cascade import Cascade
from tests.policies.closed_loop import at_most, depths, run


def planned(step_context, policy, accept, seconds, num_steps, num_rows=1):
    return depths(run(policy, [step_context(num_rows)] * num_steps, accept, seconds=seconds))


def priced(price):
    """A draft token costs ``price`` of a plain step."""
    return lambda ctx, depth: 0.01 * (1 + price * depth)


def test_a_test_runs_plain_decoding_and_every_depth_then_the_best_is_set(step_context):
    policy = Cascade(depth=3, num_trials=2, set_steps=4, max_set_steps=4)
    # 2 tokens are acceptable: gains 1, 2, 3, 3 over costs 1, 1.1, 1.2, 1.3
    found = planned(step_context, policy, at_most(2), priced(0.1), 20)
    test = [0, 0, 1, 1, 2, 2, 3, 3]
    assert found == [*test, 2, 2, 2, 2, *test]


def test_utilities_worked_out(step_context):
    policy = Cascade(depth=2, num_trials=2)
    steps = run(policy, [step_context(4)] * 6, at_most(1), seconds=priced(0.5))
    phase = steps[-1].state[2]  # 4 rows are in the third bucket
    # gains 1, 2, 2 over costs 1, 1.5, 2
    assert policy.utilities(phase) == pytest.approx([1, 2 / 1.5, 1])
    assert phase.set_depth == 1


def test_no_utility_above_1_disables_speculation_and_refusals_lengthen(step_context):
    policy = Cascade(depth=1, num_trials=1, set_steps=2, max_set_steps=5)
    found = planned(step_context, policy, at_most(9), priced(1.5), 24)
    # gain 2 over cost 2.5; each test of 0 and 1 is followed by a longer set phase, up to 5
    assert found == [n for plain in (2, 4, 5, 5) for n in (0, 1, *[0] * plain)]


def test_a_utility_of_exactly_1_does_not_pay(step_context):
    policy = Cascade(depth=1, num_trials=1, set_steps=3, max_set_steps=3)
    assert planned(step_context, policy, at_most(9), priced(1.0), 5) == [0, 1, 0, 0, 0]


def test_the_way_back_from_0(step_context):
    policy = Cascade(depth=2, num_trials=1, set_steps=8, max_set_steps=64)
    useless = run(policy, [step_context(1)] * 200, at_most(0), seconds=priced(0.2))
    assert depths(useless).count(0) > 180
    useful = run(policy, [step_context(1)] * 200, at_most(9), seconds=priced(0.2), state=useless[-1].state)
    assert depths(useful)[-100:].count(2) > 60
    assert useful[-1].state[0].num_refusals == 0


def test_buckets_of_batch_sizes_decide_apart(step_context):
    policy = Cascade(depth=1, num_trials=1, set_steps=50, batch_starts=[1, 8])

    def seconds(ctx, depth):
        return 0.01 * (1 + depth * (0.1 if ctx.num_rows < 8 else 3.0))

    contexts = [step_context(size, num_slots=16) for size in (4, 16) * 20]
    found = depths(run(policy, contexts, at_most(9), seconds=seconds))
    assert found[:4] == [0, 0, 1, 1]
    assert found[4:] == [1, 0] * 18


def test_a_step_without_time_or_rows_counts_for_nothing(step_context):
    policy = Cascade()
    assert run(policy, [step_context(4)], at_most(1))[0].state == policy.init(4)
    empty = run(policy, [step_context(0, num_slots=4)], at_most(1), seconds=priced(0.1))
    assert empty[0].state == policy.init(4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 0}, "depth must be >= 1, got 0"),
        ({"num_trials": 0}, "num_trials must be >= 1, got 0"),
        ({"set_steps": 0}, "set_steps must be >= 1, got 0"),
        ({"max_set_steps": 5}, "max_set_steps must be >= set_steps=128, got 5"),
        ({"batch_starts": [4]}, r"batch_starts must be ascending batch sizes that start at 1, got \[4\]"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Cascade(**settings)
