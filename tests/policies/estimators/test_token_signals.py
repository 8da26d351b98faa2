"""Estimators that are functions of one signal: the signal itself, and the entropy bound."""

from __future__ import annotations

import math

import pytest
import torch

from dspark.policies.estimators import EntropyBound, FromSignal, build_estimator
from dspark.types import Signal

NAN = math.nan


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("top1", Signal.TOP1_PROBABILITY),
        ("token_probability", Signal.TOKEN_PROBABILITY),
        ("confidence", Signal.CONFIDENCE),
    ],
)
def test_a_probability_is_taken_at_its_word(name, signal, step_context):
    values = torch.tensor([[0.25, 1.0, 0.5], [0.75, NAN, NAN]])
    estimator = build_estimator(name)
    assert estimator.needs == {signal}
    answer = estimator.conditional(step_context(2), {signal: values}, 3, None)
    assert answer.tolist() == [[0.25, 1.0, 0.5], [0.75, 0.0, 0.0]]


@pytest.mark.parametrize("signal", ["entropy", "margin", "loudness"])
def test_what_is_no_probability_is_refused(signal):
    with pytest.raises(ValueError, match=f"^signal must be a probability .*, got '{signal}'$"):
        FromSignal(signal=signal)


def test_entropy_bound_by_hand(step_context):
    # gamma 0.2: H = 0 -> 1; H = 0.2 -> 1 - 0.2; H = 1.25 -> 1 - 0.5; H = 5 -> 0; H = 20 -> 0, not -1
    entropy = torch.tensor([[0.0, 0.2, 1.25, 5.0, 20.0, NAN, -1e-9]], dtype=torch.float64)
    answer = EntropyBound(gamma=0.2).conditional(step_context(1), {Signal.ENTROPY: entropy}, 7, None)
    expected = [1.0, 0.8, 0.5, 0.0, 0.0, 0.0, 1.0]
    assert answer.squeeze(0).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.inf, NAN])
def test_a_share_that_is_none_is_refused(gamma):
    with pytest.raises(ValueError, match=r"^gamma must be a number > 0, got"):
        EntropyBound(gamma=gamma)
