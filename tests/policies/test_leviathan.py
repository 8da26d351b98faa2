"""The closed-form best depth as a policy."""

from __future__ import annotations

import pytest
import torch

from dspark.policies.leviathan import Leviathan
from dspark.policies.leviathan_law import best_depth
from dspark.types import Verdict
from tests.policies.closed_loop import at_most, coin_flips, depths, run


def contexts(step_context, num_steps, num_rows=8):
    return [step_context(num_rows) for _ in range(num_steps)]


@pytest.mark.parametrize(("alpha", "cost_ratio", "depth"), [(0.8, 0.05, 8), (0.5, 0.1, 2), (0.9, 0.01, 24)])
def test_a_constant_alpha_gives_the_tables_depth_always(alpha, cost_ratio, depth, step_context):
    policy = Leviathan(depth=64, alpha=alpha, cost_ratio=cost_ratio)
    assert policy.max_depth == depth
    assert depths(run(policy, contexts(step_context, 20), at_most(0))) == [depth] * 20


def test_a_constant_alpha_below_c_is_plain_decoding_for_good(step_context):
    policy = Leviathan(alpha=0.2, cost_ratio=0.3, probe_every=1)
    assert policy.max_depth == 0
    assert depths(run(policy, contexts(step_context, 20), at_most(9))) == [0] * 20


def test_the_estimate_is_accepted_over_judged_with_the_prior(step_context):
    policy = Leviathan(prior_alpha=0.5, prior_positions=4)
    assert policy.estimate(policy.init(4)) == 0.5
    # row 0: 2 accepted and a rejection, 3 judged; row 1: all of 2; row 2: the first rejected; row 3: none
    verdict = Verdict(
        verify_lengths=torch.tensor([5, 2, 1, 0]),
        accepted=torch.tensor([2, 2, 0, 0]),
        next_token=torch.zeros(4, dtype=torch.int64),
    )
    state = policy.observe(step_context(4), verdict, policy.init(4))
    assert (state.accepted, state.judged) == (4, 3 + 2 + 1)
    assert policy.estimate(state) == pytest.approx((0.5 * 4 + 4) / (4 + 6))


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_the_estimate_finds_alpha_at_any_depth(alpha, step_context):
    """Depth changes with the estimate; that positions count once they are reached keeps it unbiased."""
    policy = Leviathan(depth=12, cost_ratio=0.05, memory_positions=1e9)
    steps = run(policy, contexts(step_context, 300, num_rows=16), coin_flips(alpha))
    assert policy.estimate(steps[-1].state) == pytest.approx(alpha, abs=0.03)
    assert abs(depths(steps)[-1] - int(best_depth(alpha, 0.05, 12))) <= 1


def test_memory_is_bounded_and_follows_a_change(step_context):
    policy = Leviathan(memory_positions=200, cost_ratio=0.1)
    good = run(policy, contexts(step_context, 100), coin_flips(0.9))
    assert good[-1].state.judged <= 200
    bad = run(policy, contexts(step_context, 100), coin_flips(0.3), state=good[-1].state)
    assert policy.estimate(good[-1].state) > 0.8
    assert policy.estimate(bad[-1].state) < 0.45
    assert depths(bad)[-1] < depths(good)[-1]


def test_the_way_back_from_0(step_context):
    policy = Leviathan(cost_ratio=0.3, prior_alpha=0.2, probe_every=5)
    useless = depths(run(policy, contexts(step_context, 18, 1), at_most(0)))
    assert useless == [0] * 5 + [1] + [0] * 5 + [1] + [0] * 5 + [1]
    useful = depths(run(policy, contexts(step_context, 100, 1), at_most(9)))
    assert useful[:6] == [0] * 5 + [1]
    assert useful[-1] == int(best_depth(1.0, 0.3, policy.depth)) == policy.depth


def test_a_probe_that_nothing_was_drafted_for_is_tried_again(step_context):
    policy = Leviathan(cost_ratio=0.3, prior_alpha=0.2, probe_every=3)
    assert depths(run(policy, contexts(step_context, 6, 1), at_most(9), cap=0)) == [0, 0, 0, 1, 1, 1]


def test_a_largest_depth_of_0_never_probes(step_context):
    policy = Leviathan(depth=0, probe_every=1)
    assert depths(run(policy, contexts(step_context, 5), at_most(9))) == [0] * 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": -1}, "depth must be >= 0, got -1"),
        ({"cost_ratio": -0.1}, "cost_ratio must be >= 0 target passes a draft token, got -0.1"),
        ({"alpha": 1.1}, r"alpha must be in \[0, 1\], or null to estimate it, got 1.1"),
        ({"prior_alpha": -0.1}, r"prior_alpha must be in \[0, 1\], got -0.1"),
        ({"prior_positions": 0}, "prior_positions must be > 0, got 0"),
        ({"memory_positions": 0.5}, "memory_positions must be >= 1, got 0.5"),
        ({"probe_every": 0}, "probe_every must be >= 1 step, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Leviathan(**settings)
