"""The estimator that learns from margins while serving: what it observes, when it fits, what it finds."""

from __future__ import annotations

import math
import time

import pytest
import torch

from dspark.policies.estimators import MarginLogistic
from dspark.policies.estimators.logistic import fit_logistic
from dspark.types import Draft, Signal, Verdict

NAN = math.nan


def drafted(margins: list[list[float]] | torch.Tensor) -> Draft:
    values = torch.as_tensor(margins, dtype=torch.float32)
    return Draft(
        tokens=torch.zeros(values.shape, dtype=torch.long),
        lengths=(~values.isnan()).sum(1),
        q=None,
        signals={Signal.MARGIN: values},
    )


def verdict(draft: Draft, accepted: list[int] | torch.Tensor, verify=None) -> Verdict:
    counts = torch.as_tensor(accepted)
    lengths = draft.lengths if verify is None else torch.as_tensor(verify)
    return Verdict(verify_lengths=lengths, accepted=counts, next_token=counts, draft=draft)


def served(estimator, ctx, num_steps: int, laws: list[tuple[float, float]], seed: int = 0):
    """State after steps of whole drafts whose position k is accepted by ``laws[k - 1]``."""
    generator = torch.Generator().manual_seed(seed)
    state = estimator.init(ctx.num_rows, len(laws))
    slope, intercept = torch.tensor(laws).T
    for _ in range(num_steps):
        margins = torch.empty(ctx.num_rows, len(laws)).exponential_(0.5, generator=generator)
        chance = torch.sigmoid(slope * margins + intercept)
        accepted = (torch.rand(chance.shape, generator=generator) < chance).long().cumprod(1).sum(1)
        state = estimator.observe(ctx, verdict(drafted(margins), accepted), state)
    return state


def test_before_the_first_fit_every_margin_means_the_same(step_context):
    estimator = MarginLogistic()
    signals = {Signal.MARGIN: torch.tensor([[0.0, 3.0, NAN]])}
    answer = estimator.conditional(step_context(1), signals, 3, estimator.init(1, 3))
    assert answer.tolist() == [[pytest.approx(1 / (1 + math.exp(-1.5)))] * 2 + [0.0]]


def test_margins_are_kept_of_reached_positions_only(step_context):
    ctx = step_context(3)
    estimator = MarginLogistic(capacity=64)
    draft = drafted([[1.0, 2.0, 3.0], [4.0, math.inf, 6.0], [7.0, 8.0, NAN]])
    # row 0: rejected at 2; row 1: two verified and accepted, the third cut; row 2: rejected at once
    state = estimator.observe(ctx, verdict(draft, [1, 2, 0], [3, 2, 2]), estimator.init(3, 3))
    assert state.num_seen.tolist() == [3, 2, 0]
    assert state.margins[0, :3].tolist() == [1.0, 4.0, 7.0]
    assert state.accepted[0, :3].tolist() == [True, True, False]
    assert state.margins[1, :2].tolist() == [2.0, 40.0]  # an infinite margin is cut off
    assert state.accepted[1, :2].tolist() == [False, True]


def test_the_ring_keeps_the_last_observations_also_of_a_batch_larger_than_it(step_context):
    estimator = MarginLogistic(capacity=4, min_observations=4)
    state = estimator.init(6, 1)
    ctx = step_context(6)
    state = estimator.observe(ctx, verdict(drafted([[1.0], [2.0], [3.0]]), [1, 1, 1]), state)
    state = estimator.observe(ctx, verdict(drafted([[float(m)] for m in range(4, 10)]), [0] * 6), state)
    assert state.num_seen.tolist() == [9]
    assert sorted(state.margins[0].tolist()) == [6.0, 7.0, 8.0, 9.0]
    state = estimator.observe(ctx, verdict(drafted([[10.0]]), [1]), state)
    assert sorted(state.margins[0].tolist()) == [7.0, 8.0, 9.0, 10.0]
    assert state.margins[0][state.accepted[0]].tolist() == [10.0]


def test_fits_are_due_every_so_many_steps_with_an_observation(step_context):
    ctx = step_context(2)
    estimator = MarginLogistic(refit_every=3, warmup_fits=2, min_observations=5)
    state = estimator.init(2, 2)
    fits = []
    for step in range(12):
        nothing = torch.zeros(2, dtype=torch.long)
        if step % 2:  # every other step drafts nothing, and does not count
            state = estimator.observe(
                ctx, Verdict(verify_lengths=nothing, accepted=nothing, next_token=nothing), state
            )
        else:
            state = estimator.observe(ctx, verdict(drafted([[1.0, 1.0], [2.0, 2.0]]), [0, 0]), state)
        fits.append((state.num_fits, estimator.warming_up(state)))
    # the third and the sixth observing steps are steps 4 and 10
    assert fits == [(0, True)] * 4 + [(1, True)] * 6 + [(2, False)] * 2


def test_a_position_with_too_few_observations_keeps_its_coefficients(step_context):
    ctx = step_context(10)
    estimator = MarginLogistic(refit_every=5, min_observations=50)
    state = served(estimator, ctx, 5, [(0.5, 0.0), (0.5, 0.0)])
    assert state.num_seen[0].item() == 50
    assert state.num_seen[1].item() < 50
    assert state.num_fits == 1
    assert state.theta[0].tolist() != [0.0, 1.5]
    assert state.theta[1].tolist() == [0.0, 1.5]


def test_a_fit_for_which_no_position_has_enough_does_not_count(step_context):
    estimator = MarginLogistic(refit_every=2, min_observations=50)
    state = served(estimator, step_context(1), 20, [(0.5, 0.0)])
    assert (state.num_fits, state.theta.tolist()) == (0, [[0.0, 1.5]])


def test_recovers_the_law_of_each_position(step_context):
    laws = [(0.9, -0.6), (0.5, 0.3), (0.2, 1.0)]
    ctx = step_context(64)
    estimator = MarginLogistic(refit_every=100, capacity=8192)
    state = served(estimator, ctx, 300, laws)
    assert state.num_fits == 3
    assert not estimator.warming_up(state)
    assert state.num_seen.min() > 5000
    # standard errors of 5000 observations: 0.03 to 0.06
    torch.testing.assert_close(state.theta.float(), torch.tensor(laws), rtol=0, atol=0.2)
    signals = {Signal.MARGIN: torch.tensor([[1.0, 2.0, 3.0]])}
    one = step_context(1)
    truth = [1 / (1 + math.exp(-(w * m + b))) for m, (w, b) in zip([1, 2, 3], laws, strict=True)]
    assert estimator.conditional(one, signals, 3, state)[0].tolist() == pytest.approx(truth, abs=0.02)


def test_the_coefficients_are_the_penalised_fit_of_the_ring(step_context):
    estimator = MarginLogistic(refit_every=10, capacity=100)
    state = served(estimator, step_context(32), 10, [(0.6, 0.0)])
    assert state.num_seen.item() == 320
    everything = torch.ones(1, 100, dtype=torch.bool)
    expected = fit_logistic(state.margins, state.accepted, everything, torch.zeros(1, 2), l2=1e-3)
    torch.testing.assert_close(state.theta, expected, rtol=1e-6, atol=1e-6)


def test_a_larger_margin_never_means_less_acceptance(step_context):
    estimator = MarginLogistic(refit_every=10)
    state = served(estimator, step_context(64), 10, [(-0.5, 1.0)])
    w, b = state.theta[0].tolist()
    assert w == 0
    share = state.accepted[0, :640].double().mean().item()
    assert 1 / (1 + math.exp(-b)) == pytest.approx(share, abs=1e-4)


def test_a_drafter_without_margins_and_a_step_without_a_draft_teach_nothing(step_context):
    estimator = MarginLogistic()
    state = estimator.init(1, 1)
    bare = Draft(tokens=torch.zeros(1, 1, dtype=torch.long), lengths=torch.tensor([1]), q=None)
    assert estimator.observe(step_context(1), verdict(bare, [1]), state) is state
    one = torch.tensor([1])
    undrafted = Verdict(verify_lengths=one * 0, accepted=one * 0, next_token=one)
    assert estimator.observe(step_context(1), undrafted, state) is state


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"refit_every": 0}, r"^refit_every must be >= 1 steps, got 0$"),
        ({"warmup_fits": -1}, r"^warmup_fits must be >= 0, got -1$"),
        ({"min_observations": 0}, r"^min_observations must be >= 1, got 0$"),
        ({"capacity": 49}, r"^capacity must be >= min_observations=50, got 49$"),
        ({"l2": 0.0}, r"^l2 must be > 0, got 0.0$"),
        ({"max_margin": 0.0}, r"^max_margin must be > 0, got 0.0$"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MarginLogistic(**settings)


def test_an_estimate_for_256_rows_takes_less_than_a_millisecond(step_context):
    estimator = MarginLogistic()
    ctx = step_context(256)
    state = served(estimator, ctx, 100, [(0.5, 0.5)] * 8)
    assert state.num_fits == 1
    draft = drafted(torch.rand(256, 8))
    seen = verdict(draft, torch.randint(0, 9, (256,), generator=torch.Generator().manual_seed(0)))
    times_s = {"conditional": [], "observe": []}
    for _ in range(100):
        start_s = time.perf_counter()
        estimator.conditional(ctx, draft.signals, 8, state)
        middle_s = time.perf_counter()
        estimator.observe(ctx, seen, state)
        times_s["conditional"].append(middle_s - start_s)
        times_s["observe"].append(time.perf_counter() - middle_s)
    assert min(times_s["conditional"]) <= 1e-3
    assert min(times_s["observe"]) <= 1e-3
