"""Estimators of conditional acceptance: one idea a file, the contract in ``base``."""

from dspark.policies.estimators.base import Estimator, Observed, observed, survival
from dspark.policies.estimators.calibrated import Calibrated, load_temperatures
from dspark.policies.estimators.constant import Constant
from dspark.policies.estimators.entropy_bound import EntropyBound
from dspark.policies.estimators.from_signal import FromSignal
from dspark.policies.estimators.margin_logistic import MarginLogistic
from dspark.policies.estimators.position_window import PositionWindow
from dspark.policies.estimators.registry import ESTIMATORS, build_estimator
from dspark.policies.estimators.request_ema import RequestEma
from dspark.policies.estimators.temperature_scaling import expected_calibration_error, fit_temperatures

__all__ = [
    "ESTIMATORS",
    "Calibrated",
    "Constant",
    "EntropyBound",
    "Estimator",
    "FromSignal",
    "MarginLogistic",
    "Observed",
    "PositionWindow",
    "RequestEma",
    "build_estimator",
    "expected_calibration_error",
    "fit_temperatures",
    "load_temperatures",
    "observed",
    "survival",
]
