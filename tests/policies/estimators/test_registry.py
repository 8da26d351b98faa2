"""Estimators by name."""

from __future__ import annotations

import pytest

from dspark.policies.estimators import (
    Constant,
    EntropyBound,
    FromSignal,
    MarginLogistic,
    PositionWindow,
    RequestEma,
    build_estimator,
)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("constant", {"alpha": 0.5}, Constant(alpha=0.5)),
        ("constant", {"alpha": 1}, Constant(alpha=1)),
        ("request_ema", {}, RequestEma()),
        ("position_window", {"window": 7}, PositionWindow(window=7)),
        ("top1", {}, FromSignal(signal="top1_probability")),
        ("token_probability", {}, FromSignal(signal="token_probability")),
        ("confidence", {}, FromSignal(signal="confidence")),
        ("entropy_bound", {"gamma": 0.1}, EntropyBound(gamma=0.1)),
        ("margin_logistic", {"l2": 1, "capacity": 99}, MarginLogistic(l2=1, capacity=99)),
    ],
)
def test_a_name_and_its_settings_make_the_estimator(name, settings, expected):
    assert build_estimator(name, **settings) == expected


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("topp1", {}, r"^estimator must be one of constant, .*, got 'topp1'; did you mean 'top1'\?$"),
        ("zzz", {}, r"got 'zzz'$"),
        (
            "request_ema",
            {"decai": 0.5},
            r"^estimator request_ema has no setting 'decai'; .*did you mean 'decay'\?$",
        ),
        ("top1", {"signal": "entropy"}, r"^estimator top1 has no setting 'signal'; its settings: none$"),
        ("constant", {"alpha": "high"}, r"^alpha of estimator constant must be a number, got 'high'$"),
        ("constant", {"alpha": None}, r"must be a number, got None$"),
        ("position_window", {"window": 2.5}, r"^window of .* must be a whole number, got 2.5$"),
        ("position_window", {"window": True}, r"must be a whole number, got True$"),
    ],
)
def test_what_it_does_not_know_is_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        build_estimator(name, **settings)
