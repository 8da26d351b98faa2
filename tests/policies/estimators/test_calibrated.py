"""Temperatures on top of an estimator, and the file they come from."""

from __future__ import annotations

import json

import pytest
import torch

from dspark.policies.estimators import Calibrated, FromSignal, build_estimator, load_temperatures
from dspark.types import Signal, Verdict


def test_each_position_has_its_temperature(step_context):
    # logit .8 = ln 4: at 2, 2/3; at 1, .8; at 1/2, 16/17
    signals = {Signal.CONFIDENCE: torch.full((1, 3), 0.8, dtype=torch.float64)}
    estimator = build_estimator("confidence", temperatures=[2.0, 1.0, 0.5, 3.0])
    assert estimator.needs == {Signal.CONFIDENCE}
    answer = estimator.conditional(step_context(1), signals, 3, estimator.init(1, 4))
    assert answer[0].tolist() == pytest.approx([2 / 3, 0.8, 16 / 17], rel=1e-14)


def test_learning_and_warming_up_are_the_estimators_own(step_context):
    plain, calibrated = build_estimator("request_ema"), build_estimator("request_ema", temperatures=[1.0] * 4)
    ctx, counts = step_context(1), torch.tensor([2])
    verdict = Verdict(verify_lengths=counts, accepted=counts, next_token=counts)
    answers = [
        e.conditional(ctx, None, 4, e.observe(ctx, verdict, e.init(1, 4))) for e in (plain, calibrated)
    ]
    torch.testing.assert_close(*answers, rtol=1e-14, atol=0)
    learner = build_estimator("margin_logistic", temperatures=[1.0])
    assert learner.warming_up(learner.init(1, 1))


def test_too_few_temperatures_are_refused_before_anything_runs():
    with pytest.raises(
        ValueError, match=r"^temperatures cover 2 positions, and drafts have up to 3: calibrate"
    ):
        build_estimator("top1", temperatures=[1.0, 1.0]).init(1, 3)


@pytest.mark.parametrize("temperatures", [(), (1.0, 0.0), (-1.0,), (float("inf"),), (float("nan"),)])
def test_temperatures_that_are_none_are_refused(temperatures):
    with pytest.raises(ValueError, match=r"^temperatures must be numbers > 0, one a position, got"):
        Calibrated(estimator=FromSignal(signal="confidence"), temperatures=temperatures)


def test_temperatures_come_from_a_file(tmp_path):
    path = tmp_path / "temperatures.json"
    path.write_text(json.dumps({"schema": 1, "temperatures": [1.5, 2], "drafter": "x"}))
    assert load_temperatures(path) == (1.5, 2.0)
    for given in (path, str(path)):
        estimator = build_estimator("top1", temperatures=given)
        assert estimator == build_estimator("top1", temperatures=[1.5, 2.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
        ("{", "cannot read"),
        ("[1.0]", "is not a file of schema 1; write one with dspark calibrate"),
        ('{"schema": 2, "temperatures": [1.0]}', "is not a file of schema 1"),
        ('{"schema": 1}', "holds no list of numbers under 'temperatures'"),
        ('{"schema": 1, "temperatures": ["1"]}', "holds no list of numbers"),
    ],
)
def test_a_file_that_is_none_is_refused(text, message, tmp_path):
    path = tmp_path / "temperatures.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_temperatures(path)
    assert "\n" not in str(caught.value)


def test_an_empty_list_in_a_file_is_refused(tmp_path):
    path = tmp_path / "temperatures.json"
    path.write_text('{"schema": 1, "temperatures": []}')
    with pytest.raises(ValueError, match=r"got \[\]$"):
        build_estimator("top1", temperatures=path)
