"""Scores against numbers worked out by hand and by scikit-learn; known errors are found and repaired."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, roc_auc_score

from dspark.analysis.calibration import calibrate, ece, reliability, score, to_json
from dspark.analysis.predictions import Outcomes, conditional_outcomes, survival_outcomes
from dspark.policies.estimators import expected_calibration_error
from dspark.policies.estimators.temperature_scaling import GRID
from tests.analysis.predicted import NUM_REQUESTS, miscalibrated, predictions

if TYPE_CHECKING:
    from dspark.analysis.calibration import Calibration

NAMES = [str(i) for i in range(NUM_REQUESTS)]


def outcomes(predicted: list[float], happened: list[int]) -> Outcomes:
    return Outcomes(
        predicted=torch.tensor(predicted, dtype=torch.float64),
        happened=torch.tensor(happened, dtype=torch.bool),
    )


def run(samples, requests=NAMES, *, min_samples=50, **changes) -> Calibration:
    settings = {"fit_fraction": 0.5, "num_bins": 15, "seed": 0, **changes}
    return calibrate(samples, requests, min_samples=min_samples, **settings)


# ---- scores ------------------------------------------------------------------------------------

FIVE = outcomes([0.1, 0.3, 0.35, 0.8, 0.9], [0, 0, 1, 1, 0])


def test_scores_by_hand() -> None:
    found = score(FIVE, num_bins=2)
    # bins of [0, 0.5] and (0.5, 1]: three samples of mean 0.25, two of mean 0.85
    assert found.ece == pytest.approx(3 / 5 * abs(0.25 - 1 / 3) + 2 / 5 * abs(0.85 - 1 / 2))
    assert found.brier == pytest.approx((0.1**2 + 0.3**2 + 0.65**2 + 0.2**2 + 0.9**2) / 5)
    # 0.35 is above two of the three that did not happen, and so is 0.8
    assert found.roc_auc == pytest.approx(4 / 6)
    assert found.mean_predicted == pytest.approx(2.45 / 5)


def test_bins_by_hand() -> None:
    shares, means, counts = reliability(FIVE, num_bins=4)  # the third quarter is empty
    assert shares.tolist() == pytest.approx([0, 1 / 2, 1 / 2])
    assert means.tolist() == pytest.approx([0.1, 0.325, 0.85])
    assert counts.tolist() == [1, 2, 2]


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_scores_are_those_of_the_libraries_on_random_samples(num_bins: int) -> None:
    generator = np.random.default_rng(num_bins)
    predicted = generator.random(500)
    happened = generator.random(500) < predicted**2
    found = score(outcomes(predicted.tolist(), happened.tolist()), num_bins)
    assert found.brier == pytest.approx(brier_score_loss(happened, predicted))
    assert found.roc_auc == pytest.approx(roc_auc_score(happened, predicted))
    fitted_by = expected_calibration_error(torch.tensor(predicted), torch.tensor(happened), num_bins)
    assert found.ece == pytest.approx(float(fitted_by))


def test_probabilities_at_the_edges_of_bins_count_once() -> None:
    edges = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    _, means, counts = reliability(outcomes(edges, [0, 1] * 3), num_bins=5)
    assert counts.sum() == 6
    assert (means * counts).sum() == pytest.approx(sum(edges))
    assert ece(outcomes([0.0, 1.0], [0, 1]), num_bins=5) == 0
    assert ece(outcomes([0.0, 1.0], [1, 0]), num_bins=5) == 1


@pytest.mark.parametrize("happened", [0, 1])
def test_there_is_no_roc_curve_of_one_outcome(happened: int) -> None:
    found = score(outcomes([0.2, 0.6], [happened] * 2), num_bins=10)
    assert found.roc_auc is None
    assert found.brier == pytest.approx(((0.2 - happened) ** 2 + (0.6 - happened) ** 2) / 2)


def test_nothing_has_no_score() -> None:
    empty = outcomes([], [])
    assert ece(empty, 15) is None
    found = score(empty, 15)
    assert (found.mean_predicted, found.ece, found.brier, found.roc_auc) == (None,) * 4


# ---- calibration -------------------------------------------------------------------------------

REPAIRS = [2.0, 0.5, 4.0]
"""Temperatures that undo the error of each position."""


@pytest.fixture(scope="module")
def repaired() -> Calibration:
    return run(miscalibrated(REPAIRS, num_drafts=20_000))


def test_a_known_error_is_found(repaired: Calibration) -> None:
    step = np.log(GRID[1] / GRID[0])
    found = np.log(repaired.temperatures) - np.log(REPAIRS)
    assert np.abs(found).max() < 2.5 * step
    assert abs(found[0]) < 1.5 * step
    assert all(position.fitted for position in repaired.positions)


def test_a_known_error_is_repaired_in_requests_that_were_not_fitted_on(repaired: Calibration) -> None:
    for position in repaired.positions:
        before, after = position.survival.before, position.survival.after
        assert before.ece is not None
        assert after.ece is not None
        assert before.ece > 0.04
        assert after.ece < 0.02
        assert after.brier < before.brier
        assert position.conditional.after.ece < min(0.03, position.conditional.before.ece)
    assert repaired.survival.after.ece < repaired.survival.before.ece / 4
    assert repaired.conditional.after.brier < repaired.conditional.before.brier


def test_temperatures_keep_the_order_of_a_position(repaired: Calibration) -> None:
    for position in repaired.positions:
        before, after = position.conditional.before.roc_auc, position.conditional.after.roc_auc
        assert after == pytest.approx(before, abs=1e-12)


def test_the_counts_are_those_of_the_judging_half(repaired: Calibration) -> None:
    judged = repaired.before
    assert set(judged.request_ids) == set(repaired.evaluation_requests)
    for k, position in enumerate(repaired.positions, start=1):
        for found, sample in (
            (position.conditional, conditional_outcomes(judged, k)),
            (position.survival, survival_outcomes(judged, k)),
        ):
            assert found.num_samples == len(sample)
            assert found.num_accepted == int(sample.happened.sum())
    assert repaired.survival.num_samples == sum(p.survival.num_samples for p in repaired.positions)


def test_what_is_right_already_stays() -> None:
    right = run(miscalibrated([1.0, 1.0], num_drafts=20_000))
    assert all(0.8 < temperature < 1.25 for temperature in right.temperatures)
    assert right.survival.after.ece < 0.02


def test_another_seed_judges_by_others(repaired: Calibration) -> None:
    other = run(miscalibrated(REPAIRS, num_drafts=4_000), seed=1)
    assert set(other.evaluation_requests) != set(repaired.evaluation_requests)
    assert set(other.evaluation_requests) | set(other.fit_requests) == set(NAMES)


# ---- few samples -------------------------------------------------------------------------------


def test_positions_that_few_drafts_reach_are_marked_and_not_fitted() -> None:
    # 80 drafts of 40 requests: all reach position 1, a quarter position 2, none position 3
    accepted = [1 if i % 4 == 0 else 0 for i in range(80)]
    samples = predictions([[0.9, 0.9, 0.9]] * 80, [3] * 80, accepted, [str(i % 40) for i in range(80)])
    found = run(samples, min_samples=30)
    first, second, third = found.positions
    assert first.fitted
    assert first.temperature > 1  # 0.9 was said, and a quarter accepted
    assert not second.fitted
    assert not third.fitted
    assert (second.temperature, third.temperature) == (1.0, 1.0)
    assert [p.conditional.enough for p in found.positions] == [True, False, False]
    assert [p.survival.enough for p in found.positions] == [True] * 3
    assert third.conditional.num_samples == 0
    assert third.conditional.before.ece is None
    assert third.survival.num_accepted == 0


def test_no_draft_at_all_is_reported_as_such() -> None:
    found = run(predictions([], [], []).answered(torch.zeros(0, 2, dtype=torch.float64)))
    assert found.temperatures == (1.0, 1.0)
    assert found.survival.num_samples == 0
    assert json.loads(json.dumps(to_json(found), allow_nan=False))["positions"][1]["fitted"] is False


def test_one_request_is_not_enough() -> None:
    with pytest.raises(ValueError, match="two must have run"):
        run(miscalibrated([1.0], num_drafts=50), ["0"])


def test_plain_values_hold_every_number(repaired: Calibration) -> None:
    plain = json.loads(json.dumps(to_json(repaired), allow_nan=False))
    assert plain["temperatures"] == list(repaired.temperatures)
    assert plain["positions"][1]["survival"]["after"]["ece"] == repaired.positions[1].survival.after.ece
    assert plain["conditional"]["num_samples"] == repaired.conditional.num_samples
    assert "before" not in plain
    assert replace(repaired, positions=()).temperatures == ()
