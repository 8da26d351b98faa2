"""SGLang's tiers: averages, thresholds, hysteresis, slots, and the way back from 0."""

from __future__ import annotations

import pytest

from dspark.policies.ema import Ema
from tests.policies.closed_loop import at_most, depths, run


def one_slot(tiers, **settings):
    defaults = {"start": tiers[0], "weight": 1.0, "warmup_steps": 0, "update_interval": 1}
    return Ema(tiers={1: tiers}, down_hysteresis={}, **{**defaults, **settings})


def test_the_published_slots():
    policy = Ema()
    assert policy.tiers == {1: [1, 3, 5, 7], 8: [0, 1, 3], 32: [0, 1], 64: [0]}
    assert policy.max_depth == 7


def test_a_batch_belongs_to_the_slot_of_the_largest_key_up_to_it(step_context):
    policy = Ema(tiers={1: [5], 8: [3], 32: [1], 64: [0]}, down_hysteresis={})
    sizes = [1, 7, 8, 31, 32, 63, 64, 200, 3]
    contexts = [step_context(size, num_slots=256) for size in sizes]
    assert depths(run(policy, contexts, at_most(0))) == [5, 5, 3, 3, 1, 1, 0, 0, 5]


def test_slots_learn_apart(step_context):
    policy = Ema(tiers={1: [1, 4], 4: [1, 4]}, start=4, down_hysteresis={}, weight=1.0, warmup_steps=0)
    small, large = step_context(1, num_slots=4), step_context(4)
    after = run(policy, [small] * 5, at_most(0))[-1].state
    assert policy.plan(small, after).tolist() == [1]
    assert policy.plan(large, after).tolist() == [4] * 4


def test_the_average_moves_by_its_weight(step_context):
    policy = one_slot([4], weight=0.2)
    steps = run(policy, [step_context(3)] * 3, at_most(1))
    averages = [step.state[0].average for step in steps]
    start = 4 - 1  # as if all but one token had been accepted
    first = 0.8 * start + 0.2 * 1
    second = 0.8 * first + 0.2 * 1
    assert averages == pytest.approx([first, second, 0.8 * second + 0.2 * 1])


def test_warm_up_and_interval_are_as_published(step_context):
    """10 steps of warm-up, then a move every 5: the first after step 15."""
    policy = Ema(start=7)
    planned = depths(run(policy, [step_context(1)] * 21, at_most(0)))
    assert planned[:15] == [7] * 15
    assert planned[15] < 7
    moves = [i for i in range(1, 21) if planned[i] != planned[i - 1]]
    assert moves[0] == 15
    assert all((move - 10) % 5 == 0 for move in moves)


def test_it_falls_and_rises_by_several_tiers_at_once(step_context):
    # average 0 <= 5 - .5, 3 - .5 and 1 - .5, so down to 1
    assert depths(run(one_slot([1, 3, 5, 7], start=7), [step_context(1)] * 2, at_most(0))) == [7, 1]
    # average 1 > 1 - .5, so up to 3, and not to 5, as 1 <= 3 - .5
    assert depths(run(one_slot([1, 3, 5, 7]), [step_context(1)] * 4, at_most(9))) == [1, 3, 5, 7]


def test_a_tier_is_left_downwards_at_the_next_lower_one_less_a_half(step_context):
    # with 3 accepted of 5: 3 <= 3 - .5 is false, so it stays, and 3 > 5 - .5 is false
    assert depths(run(one_slot([1, 3, 5], start=5), [step_context(1)] * 3, at_most(3))) == [5, 5, 5]
    # with 2 accepted: 2 <= 3 - .5, so down to 3; there 2 <= 1 - .5 is false, and 2 > 3 - .5 too
    assert depths(run(one_slot([1, 3, 5], start=5), [step_context(1)] * 3, at_most(2))) == [5, 3, 3]


def test_hysteresis_moves_the_thresholds(step_context):
    # 2 accepted of 5: 2 <= 3 - .5 - .75 is false
    lazy = Ema(
        tiers={1: [1, 3, 5]},
        start=5,
        weight=1.0,
        warmup_steps=0,
        update_interval=1,
        down_hysteresis={1: -0.75},
    )
    assert depths(run(lazy, [step_context(1)] * 3, at_most(2))) == [5, 5, 5]
    # all of 1 accepted: 1 > 1 - .5 + .5 is false
    assert depths(run(one_slot([1, 3], up_hysteresis=0.5), [step_context(1)] * 3, at_most(9))) == [1, 1, 1]


def test_a_tier_of_0_counts_as_1_on_the_way_down(step_context):
    # half a token accepted on average: .5 <= 1 - .5
    policy = one_slot([0, 2], start=2, weight=0.5)
    assert depths(run(policy, [step_context(1)] * 2, at_most(0))) == [2, 0]


def test_the_way_back_from_0_tries_the_next_tier_at_every_second_update(step_context):
    policy = one_slot([0, 1, 3], start=0, weight=0.5)
    assert depths(run(policy, [step_context(1)] * 6, at_most(0))) == [0, 1, 0, 1, 0, 1]
    assert depths(run(policy, [step_context(1)] * 6, at_most(9))) == [0, 1, 0, 1, 3, 3]


def test_a_slot_without_history_tries_its_first_tier_without_prejudice(step_context):
    policy = one_slot([0, 3], start=0)
    assert policy.init(1)[0].average == -1
    assert run(policy, [step_context(1)], at_most(0))[0].state[0].average == 3 - 1


def test_only_rows_with_a_draft_are_averaged(step_context):
    policy = one_slot([4], weight=1.0)
    ctx = step_context(2)
    steps = run(policy, [ctx], lambda lengths: lengths.clamp(max=2), cap=0)
    assert steps[0].state[0].average == 3  # nothing drafted, nothing learned
    assert steps[0].state[0].num_steps == 1


def test_a_start_that_is_no_tier_becomes_the_middle_one():
    state = Ema(start=3).init(1)
    assert [policy_slot.index for policy_slot in state] == [1, 2, 1, 0]


def test_an_empty_step_changes_nothing(step_context):
    policy = one_slot([0, 1])
    state = policy.init(4)
    assert run(policy, [step_context(0, num_slots=4)], at_most(0))[0].state == state


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tiers": {}}, "the batch sizes of tiers must be ascending batch sizes that start at 1, got"),
        ({"tiers": {2: [1]}}, r"that start at 1, got \[2\]"),
        ({"tiers": {1: []}}, r"tiers\[1\] must hold a depth at least, got none"),
        ({"tiers": {1: [3, 1]}}, r"tiers\[1\] must be ascending depths, got \[3, 1\]"),
        ({"tiers": {1: [1, 1]}}, r"tiers\[1\] must be ascending depths, got \[1, 1\]"),
        ({"tiers": {1: [-1]}}, r"each depth of tiers\[1\] must be >= 0, got -1"),
        ({"down_hysteresis": {5: 0.0}}, "down_hysteresis must name batch sizes of tiers, got 5"),
        ({"weight": 0.0}, r"weight must be in \(0, 1\], got 0.0"),
        ({"warmup_steps": -1}, "warmup_steps must be >= 0, got -1"),
        ({"update_interval": 0}, "update_interval must be >= 1 step, got 0"),
        ({"start": -1}, "start must be >= 0, got -1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Ema(**settings)
