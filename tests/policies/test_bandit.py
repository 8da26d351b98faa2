"""Depths as arms: rewards from measured time, buckets, randomness, the way back."""

from __future__ import annotations

import pytest

from dspark.policies.bandit import ALGORITHMS, Bandit
from dspark.policies.chance import chances
from tests.policies.closed_loop import at_most, coin_flips, depths, run


def knee(ctx, depth):
    """Seconds of a step on a machine that verifies up to 2 drafts almost for free."""
    return 0.010 + 0.0002 * depth + 0.008 * max(0, depth - 2)


@pytest.mark.parametrize("settings", [{"bonus": "own", "exploration": 0.02}, {}], ids=["own", "total"])
def test_ucb_finds_the_knee(settings, step_context):
    found = depths(run(Bandit(**settings), [step_context(4)] * 300, at_most(9), seconds=knee))
    assert found[:8] == [1, 2, 3, 4] * 2
    assert found[-100:].count(2) > 60


@pytest.mark.parametrize("algorithm", ["exp3", "epsilon_greedy"])
def test_random_rules_find_the_knee(algorithm, step_context):
    policy = Bandit(algorithm=algorithm, depths=[0, 1, 2, 4])
    found = depths(run(policy, [step_context(4)] * 1500, coin_flips(0.9), seconds=knee))
    assert found[-400:].count(2) > 200
    assert set(found[-400:]) == {0, 1, 2, 4}  # exploring goes on


def test_a_reward_is_emitted_tokens_over_seconds(step_context):
    policy = Bandit(depths=[3], batch_starts=[1])
    state = run(policy, [step_context(4)], at_most(2), seconds=lambda ctx, depth: 0.5)[0].state
    assert state[0].means == (4 * (2 + 1) / 0.5,)


def test_buckets_learn_apart(step_context):
    policy = Bandit(algorithm="epsilon_greedy", epsilon=1e-9, depths=[0, 4], batch_starts=[1, 8])

    def seconds(ctx, depth):
        return 0.01 * (1 + depth * (ctx.num_rows >= 8))

    sizes = [2, 10] * 20
    contexts = [step_context(size, num_slots=10) for size in sizes]
    found = depths(run(policy, contexts, at_most(2), seconds=seconds))
    assert found[:4] == [0, 0, 4, 4]  # each bucket tries both
    assert found[4:] == [4, 0] * 18


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_step_without_time_or_rows_teaches_nothing(algorithm, step_context):
    policy = Bandit(algorithm=algorithm)
    state = policy.init(8)
    assert run(policy, [step_context(3)], at_most(1))[0].state == state
    empty = run(policy, [step_context(0, num_slots=8)], at_most(1), seconds=lambda ctx, depth: 1.0)
    assert empty[0].state == state


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_repeats_itself_and_other_seeds_explore_otherwise(algorithm, step_context):
    contexts = [step_context(4)] * 120

    def found(seed):
        policy = Bandit(algorithm=algorithm, seed=seed, depths=[0, 1, 2, 4], bonus="own", epsilon=0.5)
        return depths(run(policy, contexts, at_most(3), seconds=knee))

    assert found(1) == found(1)
    assert (found(1) == found(2)) == (algorithm == "ucb")


def test_chances_are_uniform_functions_of_seed_and_step():
    drawn = [chances(seed, step, 2) for seed in range(20) for step in range(100)]
    assert chances(3, 7, 2) == chances(3, 7, 2)
    assert len({value for pair in drawn for value in pair}) == 2 * len(drawn)
    for column in zip(*drawn, strict=True):
        assert sum(column) / len(drawn) == pytest.approx(0.5, abs=0.03)
        assert sum(value < 0.1 for value in column) / len(drawn) == pytest.approx(0.1, abs=0.03)
    assert sum((a < 0.5) == (b < 0.5) for a, b in drawn) / len(drawn) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "thompson"}, "algorithm must be one of ucb, exp3, epsilon_greedy, got 'thompson'"),
        ({"depths": []}, r"depths must be at least one depth, got \[\]"),
        ({"depths": [1, 1]}, r"depths must be different from each other, got \[1, 1\]"),
        ({"depths": [-1]}, "each of depths must be >= 0, got -1"),
        ({"batch_starts": [2]}, r"batch_starts must be ascending batch sizes that start at 1, got \[2\]"),
        ({"batch_starts": []}, r"that start at 1, got \[\]"),
        ({"batch_starts": [1, 4, 4]}, r"that start at 1, got \[1, 4, 4\]"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"exploration": -1.0}, "exploration must be >= 0, got -1.0"),
        ({"bonus": "none"}, "bonus must be own or total, got 'none'"),
        ({"warmup_rounds": 0}, "warmup_rounds must be >= 1, got 0"),
        ({"epsilon": 1.5}, r"epsilon must be in \[0, 1\], got 1.5"),
        ({"window": 0}, "window must be >= 1 reward, got 0"),
        ({"depths": [0, 1]}, "depths hold 0, from which ucb with bonus=total may never return"),
        (
            {"depths": [0, 1], "algorithm": "exp3", "epsilon": 0.0},
            "from which exp3 with epsilon=0.0 may never return",
        ),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Bandit(**settings)
