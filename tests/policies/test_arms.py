"""Bandit rules: their formulas against plain arithmetic, and what they find."""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from dspark.policies.arms import EpsilonGreedy, Exp3, Ucb

MEANS = (0.5, 0.9, 0.7)
"""Mean reward of each arm; rewards are within 0.1 of it."""


def play(rule, num_plays, seed=0, means=MEANS):
    """Arms played, and the last state."""
    generator = torch.Generator().manual_seed(seed)
    state, arms = rule.init(len(means)), []
    for _ in range(num_plays):
        drawn = torch.rand(rule.num_chances + 1, generator=generator, dtype=torch.float64).tolist()
        arm = rule.choose(state, drawn[1:])
        arms.append(arm)
        state = rule.learn(state, arm, means[arm] + 0.2 * (drawn[0] - 0.5))
    return arms, state


RULES = {
    "ucb_own": Ucb(bonus="own", exploration=0.5),
    "ucb_total": Ucb(),
    "exp3": Exp3(),
    "epsilon_greedy": EpsilonGreedy(),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_the_best_arm_is_played_most(rule):
    arms, _ = play(rule, 3000)
    counts = [arms.count(arm) for arm in range(3)]
    assert counts[1] > 0.5 * len(arms), counts


@pytest.mark.parametrize("name", ["ucb_own", "exp3", "epsilon_greedy"])
def test_an_arm_that_was_bad_is_found_when_it_becomes_good(name):
    rule = RULES[name]
    assert rule.always_returns
    _, state = play(rule, 300, means=(0.9, 0.2))
    generator = torch.Generator().manual_seed(9)
    late = []
    for _ in range(6000):
        drawn = torch.rand(rule.num_chances, generator=generator, dtype=torch.float64).tolist()
        arm = rule.choose(state, drawn)
        late.append(arm)
        state = rule.learn(state, arm, (0.2, 0.9)[arm])
    assert late[-500:].count(1) > 400


def test_ucb_warms_up_in_turn():
    arms, _ = play(Ucb(warmup_rounds=2), 6)
    assert arms == [0, 1, 2, 0, 1, 2]


def test_ucb_bounds_worked_out():
    rule = Ucb(bonus="own", exploration=6.0, warmup_rounds=1)
    state = rule.init(3)
    for arm, reward in ((0, 40.0), (1, 100.0), (2, 90.0)):
        assert rule.choose(state, ()) == arm
        state = rule.learn(state, arm, reward)
    # shares .4, 1, .9 of the largest reward, and equal bonuses
    assert rule.choose(state, ()) == 1
    state = rule.learn(state, 1, 60.0)
    # means .4, .8, .9; t = 5, n = 1, 2, 1: the third has the larger mean and the larger bonus
    bonus = [math.sqrt(6 * math.log(5) / n) for n in (1, 2, 1)]
    bounds = [mean + extra for mean, extra in zip((0.4, 0.8, 0.9), bonus, strict=True)]
    assert bounds.index(max(bounds)) == 2
    assert rule.choose(state, ()) == 2
    for _ in range(10):
        state = rule.learn(state, 2, 90.0)
    # n = 1, 2, 11: the neglected first arm is back
    bonus = [math.sqrt(6 * math.log(15) / n) for n in (1, 2, 11)]
    bounds = [mean + extra for mean, extra in zip((0.4, 0.8, 0.9), bonus, strict=True)]
    assert bounds.index(max(bounds)) == 0
    assert rule.choose(state, ()) == 0


def test_ucb_with_the_released_bonus_follows_the_best_mean():
    rule = Ucb(warmup_rounds=1)
    state = rule.init(2)
    for arm, reward in ((0, 10.0), (1, 9.0)):
        state = rule.learn(state, arm, reward)
    assert not rule.always_returns
    for _ in range(50):
        assert rule.choose(state, ()) == 0
        state = rule.learn(state, 0, 9.5)
    state = rule.learn(state, 0, -1000.0)
    assert rule.choose(state, ()) == 1


def test_exp3_probabilities_and_estimates_worked_out():
    rule = Exp3(epsilon=0.3)
    state = rule.init(3)
    assert rule.probabilities(state) == pytest.approx([1 / 3] * 3)
    state = rule.learn(state, 0, 80.0)  # the largest so far: no loss
    assert state.losses == (0.0, 0.0, 0.0)
    state = rule.learn(state, 1, 20.0)  # a loss of .75 at probability 1/3
    assert state.losses == pytest.approx((0.0, 2.25, 0.0))
    rate = math.sqrt(math.log(3) / (3 * 3))  # of the third play
    weights = [1.0, math.exp(-rate * 2.25), 1.0]
    expected = [0.7 * weight / sum(weights) + 0.1 for weight in weights]
    assert rule.probabilities(state) == pytest.approx(expected)
    assert sum(expected) == pytest.approx(1)


def test_exp3_draws_arms_in_proportion():
    rule = Exp3(epsilon=0.2)
    state = rule.learn(rule.learn(rule.init(3), 2, 10.0), 1, 2.0)
    chances = torch.linspace(0, 1, 10_001, dtype=torch.float64)[:-1].tolist()
    arms = [rule.choose(state, (chance,)) for chance in chances]
    shares = [arms.count(arm) / len(arms) for arm in range(3)]
    assert shares == pytest.approx(rule.probabilities(state), abs=2e-4)
    assert rule.choose(state, (1 - 1e-17,)) == 2  # a chance at the very end


def test_exp3_does_not_overflow():
    rule = Exp3(epsilon=0.1)
    state = rule.init(2)
    for _ in range(2000):
        state = rule.learn(state, 0, 1e-3)
        state = rule.learn(state, 1, 1.0)
    probabilities = rule.probabilities(state)
    assert all(map(math.isfinite, probabilities))
    assert probabilities == pytest.approx([0.05, 0.95], abs=1e-3)


def test_epsilon_greedy_tries_every_arm_first_then_goes_by_medians():
    rule = EpsilonGreedy(epsilon=0.0, window=3)
    state = rule.init(3)
    for arm in range(3):
        assert rule.choose(state, (0.5, 0.5)) == arm
        state = rule.learn(state, arm, (5.0, 7.0, 6.0)[arm])
    # one very slow and two usual steps: the mean would fall below 6, the median does not
    for reward in (0.1, 7.2, 6.8):
        state = rule.learn(state, 1, reward)
    assert state.windows[1] == (0.1, 7.2, 6.8)
    assert statistics.mean(state.windows[1]) < 6 < statistics.median(state.windows[1])
    assert rule.choose(state, (0.5, 0.5)) == 1


def test_epsilon_greedy_explores_uniformly_with_its_first_chance():
    rule = EpsilonGreedy(epsilon=0.25)
    state = rule.init(4)
    for arm in range(4):
        state = rule.learn(state, arm, 10.0 - arm)
    assert [rule.choose(state, (0.24, which)) for which in (0.0, 0.26, 0.51, 0.99)] == [0, 1, 2, 3]
    assert {rule.choose(state, (0.25, which)) for which in (0.0, 0.3, 0.99)} == {0}
