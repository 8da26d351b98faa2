"""Statuses follow from what `dspark calibrate` says, and positions without an answer say why."""

from __future__ import annotations

import json

import pytest

from experiments.e07_calibration.experiment import (
    AFTER,
    AREAS,
    AUC,
    BEFORE,
    DEPTH,
    ERRORS,
    MENDS,
    _claims,
)
from experiments.reproduce import Status
from tests.experiments.conftest import Shortened


def _position(before: float | None, after: float | None, area: float | None, *, fitted: bool = True) -> dict:
    return {
        "temperature": 1.5,
        "fitted": fitted,
        "survival": {
            "num_samples": 1200,
            "num_accepted": 300,
            "before": {"ece": before, "roc_auc": area},
            "after": {"ece": after, "roc_auc": area},
        },
    }


def _like_the_paper() -> dict[int, dict]:
    return {k: _position(BEFORE[k] / 100, AFTER[k] / 100, AUC[k]) for k in AFTER}


def test_the_papers_numbers_are_reproduced_by_themselves() -> None:
    claims = _claims(_like_the_paper())
    assert [claim.what for claim in claims] == [c.what for c in (*ERRORS.values(), *AREAS.values(), MENDS)]
    assert {claim.status for claim in claims} == {Status.REPRODUCED}
    assert claims[0].note == "1,200 drafts, 300 accepted"
    assert claims[-1].ours == pytest.approx((2.0 + 1.7 + 0.8 + 0.4) / (5.7 + 8.2 + 5.8 + 3.3))


@pytest.mark.parametrize(
    ("error", "area", "status"),
    [(0.029, 0.76, Status.SHAPE_ONLY), (0.031, 0.74, Status.NOT_REPRODUCED)],
)
def test_others_have_bounds(error: float, area: float, status: Status) -> None:
    positions = _like_the_paper()
    positions[5] = _position(0.05, error, area, fitted=False)
    claims = {claim.what: claim for claim in _claims(positions)}
    for claim in (ERRORS[5], AREAS[5]):
        assert claims[claim.what].status is status
        assert claims[claim.what].note.endswith("; temperature not fitted")


def test_without_an_answer_the_claim_is_left_out() -> None:
    positions = {**_like_the_paper(), 7: _position(None, None, None)}
    left = {claim.what for claim in _claims(positions) if claim.status is Status.NOT_RUN}
    assert left == {ERRORS[7].what, AREAS[7].what, MENDS.what}


def test_scaling_that_makes_errors_larger_is_told() -> None:
    positions = {k: _position(0.02, 0.025, AUC[k]) for k in AFTER}
    assert _claims(positions)[-1].status is Status.NOT_REPRODUCED


def test_the_shortened_run_tells_every_position(shortened: Shortened) -> None:
    result, folder = shortened("e07_calibration")
    scores = json.loads((folder / "calibrate" / "calibration.json").read_text())
    assert scores["estimator"] == "confidence"
    (table,) = result.tables
    assert [row[0] for row in table.rows] == [str(k) for k in range(1, DEPTH + 1)]
    first = scores["positions"][0]["survival"]
    claims = {claim.what: claim for claim in result.claims}
    assert claims[ERRORS[1].what].ours == pytest.approx(100 * first["after"]["ece"])
    assert claims[AREAS[1].what].ours == pytest.approx(first["after"]["roc_auc"])
    assert 0 < first["num_accepted"] < first["num_samples"], "the stand-in guesses some and not all"
