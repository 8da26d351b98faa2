"""Which drafts answer which question, who fits and who judges, and an estimator over a recording."""

from __future__ import annotations

import pytest
import torch

from dspark.analysis.predictions import (
    conditional_outcomes,
    predict,
    split_requests,
    survival_outcomes,
)
from dspark.metrics.observations import Observation
from dspark.policies.estimators import build_estimator
from dspark.types import NO_TOKEN, Draft, Signal, StepContext, Verdict
from tests.analysis.predicted import predictions

NAN = float("nan")


def observation(step: int, accepted: list[int], top1: list[list[float]], *, is_new=False) -> Observation:
    """A step of rows "a", "b", ... in slots 0, 1, ...; all of a draft is verified."""
    num_rows, width = len(accepted), max(map(len, top1))
    lengths = torch.tensor([len(row) for row in top1])
    slots = torch.arange(num_rows)
    padded = [[*row, *[NAN] * (width - len(row))] for row in top1]
    draft = Draft(
        tokens=torch.full((num_rows, width), NO_TOKEN),
        lengths=lengths,
        q=None,
        signals={Signal.TOP1_PROBABILITY: torch.tensor(padded, dtype=torch.float64)},
    )
    return Observation(
        request_ids=tuple("abcdefgh"[:num_rows]),
        ctx=StepContext(
            step=step,
            slots=slots,
            is_new=torch.full((num_rows,), is_new),
            context_lengths=slots + 9,
            remaining_tokens=slots + 90,
            depth_caps=slots + 99,
            num_slots=4,
            cost=None,
        ),
        verdict=Verdict(
            verify_lengths=lengths,
            accepted=torch.tensor(accepted),
            next_token=torch.zeros(num_rows, dtype=torch.int64),
            draft=draft if width else None,
        ),
    )


# ---- outcomes ----------------------------------------------------------------------------------

DRAFTS = predictions(
    conditional=[[0.9, 0.5, 0.4], [0.8, 0.6, NAN], [0.3, 0.2, 0.1], [0.7, NAN, NAN]],
    verified=[3, 2, 3, 1],
    accepted=[3, 1, 0, 1],
)


def test_conditional_outcomes_are_of_drafts_accepted_up_to_the_position_before() -> None:
    first, second, third = (conditional_outcomes(DRAFTS, k) for k in (1, 2, 3))
    assert first.predicted.tolist() == [0.9, 0.8, 0.3, 0.7]
    assert first.happened.tolist() == [True, True, False, True]
    assert second.predicted.tolist() == [0.5, 0.6]  # the third was rejected before, the fourth ended
    assert second.happened.tolist() == [True, False]
    assert third.predicted.tolist() == [0.4]
    assert third.happened.tolist() == [True]


def test_survival_outcomes_are_of_all_drafts_verified_that_far() -> None:
    second, third = (survival_outcomes(DRAFTS, k) for k in (2, 3))
    assert second.predicted.tolist() == pytest.approx([0.9 * 0.5, 0.8 * 0.6, 0.3 * 0.2])
    assert second.happened.tolist() == [True, False, False]
    assert third.predicted.tolist() == pytest.approx([0.9 * 0.5 * 0.4, 0.3 * 0.2 * 0.1])
    assert third.happened.tolist() == [True, False]


def test_at_the_first_position_both_are_the_same() -> None:
    both = conditional_outcomes(DRAFTS, 1), survival_outcomes(DRAFTS, 1)
    assert torch.equal(both[0].predicted, both[1].predicted)
    assert torch.equal(both[0].happened, both[1].happened)


def test_the_drafts_of_some_requests() -> None:
    some = DRAFTS.of({"0", "3", "no such"})
    assert some.request_ids == ("0", "3")
    assert some.accepted.tolist() == [3, 1]
    assert some.conditional[:, 0].tolist() == [0.9, 0.7]


# ---- the split ---------------------------------------------------------------------------------


def test_no_request_fits_and_judges() -> None:
    names = [f"r{i}" for i in range(11)]
    fit, judge = split_requests([*names, *names], fit_fraction=0.4, seed=0)
    assert len(fit) == 4
    assert fit | judge == set(names)
    assert not fit & judge


def test_the_split_is_by_ids_and_seed_alone() -> None:
    names = [f"r{i}" for i in range(30)]
    first = split_requests(names, fit_fraction=0.5, seed=3)
    assert split_requests(names[::-1], fit_fraction=0.5, seed=3) == first
    assert split_requests(names, fit_fraction=0.5, seed=4) != first


@pytest.mark.parametrize(("fraction", "num_fit"), [(0.01, 1), (0.99, 4)])
def test_each_side_has_a_request(fraction: float, num_fit: int) -> None:
    fit, judge = split_requests("abcde", fit_fraction=fraction, seed=0)
    assert (len(fit), len(judge)) == (num_fit, 5 - num_fit)


def test_one_request_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="so two must have run, got 1"):
        split_requests(["a", "a"], fit_fraction=0.5, seed=0)
    with pytest.raises(ValueError, match="fit_fraction must be in"):
        split_requests(["a", "b"], fit_fraction=1.0, seed=0)


# ---- an estimator over a recording -------------------------------------------------------------


def test_answers_are_those_of_the_signals_and_end_with_the_draft() -> None:
    steps = [
        observation(0, [1, 0], [[0.9, 0.8, 0.7], [0.6]], is_new=True),
        observation(1, [0, 0], [[], []]),  # nothing drafted: no sample
        observation(2, [0, 2], [[], [0.5, 0.4]]),
    ]
    found = predict(steps, build_estimator("top1"), depth=4)
    assert found.request_ids == ("a", "b", "b")
    expected = [[0.9, 0.8, 0.7, NAN], [0.6, NAN, NAN, NAN], [0.5, 0.4, NAN, NAN]]
    torch.testing.assert_close(
        found.conditional, torch.tensor(expected, dtype=torch.float64), equal_nan=True, rtol=0, atol=0
    )
    assert found.verify_lengths.tolist() == [3, 1, 2]
    assert found.accepted.tolist() == [1, 0, 2]


def test_an_estimator_answers_before_it_learns() -> None:
    estimator = build_estimator("position_window")
    steps = [observation(i, [i % 3], [[0.5, 0.5]], is_new=i == 0) for i in range(6)]
    found = predict(steps, estimator, depth=2)
    state, expected = estimator.init(4, 2), []
    for step in steps:
        expected.append(estimator.conditional(step.ctx, None, 2, state))
        state = estimator.observe(step.ctx, step.verdict, state)
    assert torch.equal(found.conditional, torch.cat(expected))
    assert len(found.conditional.unique()) > 2, "it learned nothing"


def test_no_steps_are_no_drafts() -> None:
    empty = predict([], build_estimator("top1"), depth=3)
    assert empty.request_ids == ()
    assert empty.conditional.shape == (0, 3)
    assert len(conditional_outcomes(empty, 1)) == 0


def test_a_recording_without_the_signal_is_refused() -> None:
    with pytest.raises(ValueError, match="entropy"):
        predict([observation(0, [0], [[0.5]])], build_estimator("entropy_bound"), depth=1)
