"""Nightjar's planner: schedule of blocks and bins, losses, the switch cost, the way back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dspark.policies.nightjar import Context, Nightjar, NightjarState, bin_length, num_bins
from tests.policies.closed_loop import at_most, coin_flips, depths, run


def test_blocks_double_and_bins_are_square_roots():
    assert [bin_length(block) for block in range(1, 8)] == [1, 1, 2, 2, 4, 5, 8]
    # as many bins as cover 1, 2, 4, 8, 16, 32 and 64 steps
    assert [num_bins(block) for block in range(1, 8)] == [1, 2, 2, 4, 4, 7, 8]


def test_a_context_goes_through_its_bins_with_one_depth_each(step_context):
    policy = Nightjar(depth=6)
    steps = run(policy, [step_context(2)] * 80, at_most(3), seconds=lambda ctx, depth: 0.01)
    lengths = [bin_length(block) for block in range(1, 7) for _ in range(num_bins(block))]
    planned, at = depths(steps), 0
    for length in lengths:
        bin_depths = planned[at : at + length]
        assert len(set(bin_depths)) <= 1, (at, bin_depths)
        at += length
    assert at > 64
    assert len(set(planned)) > 3


def test_contexts_are_ranges_of_batch_sizes_and_learn_apart(step_context):
    policy = Nightjar(depth=2, bin_width=4)
    state = policy.init(10)
    assert len(state.contexts) == 3
    after = run(policy, [step_context(4, num_slots=10)] * 3, at_most(1), seconds=lambda ctx, depth: 0.01)
    first, *others = after[-1].state.contexts
    assert sum(first.seconds) == pytest.approx(0.03)
    assert others == [state.contexts[1], state.contexts[2]]
    # 5 rows fall into the second, 10 into the third
    for rows, index in ((5, 1), (8, 1), (9, 2), (10, 2)):
        moved = run(policy, [step_context(rows, num_slots=10)], at_most(1), seconds=lambda ctx, depth: 0.01)
        changed = [a != b for a, b in zip(moved[0].state.contexts, state.contexts, strict=True)]
        assert changed.index(True) == index


def exploiting(tokens, seconds, last_depth) -> NightjarState:
    """A state whose next bin is number 10^9 of its block: exploring is all but impossible."""
    context = Context(tokens=tokens, seconds=seconds, block=62, bin=10**9)
    return NightjarState(contexts=(context,), last_depth=last_depth)


def test_the_loss_worked_out(step_context):
    """10, 8 and 7 seconds a token; after a plain step depth d also pays 6 / d."""
    tokens, seconds = (2.0, 2.0, 2.0), (20.0, 16.0, 14.0)
    policy, ctx = Nightjar(depth=2, switch_cost_s=6.0), step_context(1)
    # drafter awake: 10, 8, 7
    assert policy.plan(ctx, exploiting(tokens, seconds, last_depth=1)).tolist() == [2]
    # asleep: 10, 8 + 6, 7 + 3: equal for 0 and 2, and the smaller one wins
    assert policy.plan(ctx, exploiting(tokens, seconds, last_depth=0)).tolist() == [0]
    cheaper = replace(policy, switch_cost_s=5.9)
    assert cheaper.plan(ctx, exploiting(tokens, seconds, last_depth=0)).tolist() == [2]


def test_depths_without_a_time_come_first(step_context):
    policy = Nightjar(depth=3)
    state = exploiting((5.0, 0.0, 5.0, 0.0), (0.1, 0.0, 0.1, 0.0), last_depth=2)
    assert policy.plan(step_context(1), state).tolist() == [1]


def test_rates_are_sums_over_sums_a_row(step_context):
    policy = Nightjar(depth=0)
    seconds = iter((0.5, 0.1))
    steps = run(policy, [step_context(2)] * 2, at_most(0), seconds=lambda ctx, depth: next(seconds))
    context = steps[-1].state.contexts[0]
    assert context.tokens == (2.0,)  # one a row and step
    assert context.seconds == pytest.approx((0.6,))


def test_exploring_has_probability_1_over_the_bins_number(step_context):
    policy, ctx = Nightjar(depth=1, seed=5), step_context(1)
    context = Context(tokens=(9.0, 9.0), seconds=(9.0, 0.9), block=20, bin=3)  # the next is number 4
    state = NightjarState(contexts=(context,), last_depth=1)
    plans = [int(policy.plan(replace(ctx, step=step), state)) for step in range(3000)]
    # exploiting gives 1, exploring gives 0 half of the time: 0 in 1/8 of all
    assert plans.count(0) / 3000 == pytest.approx(1 / 8, abs=0.02)


def test_it_settles_at_the_best_depth(step_context):
    """With 0.8 accepted and a token of 10 % of a pass, Theorem 3.8 says 4; 3 and 5 are close."""
    policy = Nightjar(depth=8, switch_cost_s=0.001)
    contexts = [step_context(2)] * 3000
    steps = run(policy, contexts, coin_flips(0.8), seconds=lambda ctx, depth: 0.01 * (1 + 0.1 * depth))
    late = depths(steps)[-1000:]
    assert sum(depth in (3, 4, 5, 6) for depth in late) > 700


def test_the_way_back_from_0(step_context):
    """Speculation costs too much at first and pays later; the first bin of every block tries."""

    def run_from(state, num_steps, price):
        return run(
            Nightjar(depth=2, switch_cost_s=0.0),
            [step_context(1)] * num_steps,
            at_most(9),
            seconds=lambda ctx, depth: 0.01 * (1 + price * depth),
            state=state,
        )

    early = run_from(None, 300, 4.0)
    assert depths(early)[-100:].count(0) > 60
    late = run_from(early[-1].state, 3000, 0.01)
    assert depths(late)[-500:].count(0) < 250


def test_a_step_without_time_changes_nothing(step_context):
    policy = Nightjar()
    assert run(policy, [step_context(4)], at_most(1))[0].state == policy.init(4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": -1}, "depth must be >= 0, got -1"),
        ({"bin_width": 0}, "bin_width must be >= 1 batch size, got 0"),
        ({"switch_cost_s": -0.1}, "switch_cost_s must be >= 0 seconds, got -0.1"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Nightjar(**settings)
