"""Estimators by name, as a policy's settings give them."""

from __future__ import annotations

import difflib
from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from dspark.policies.estimators.calibrated import Calibrated, load_temperatures
from dspark.policies.estimators.constant import Constant
from dspark.policies.estimators.entropy_bound import EntropyBound
from dspark.policies.estimators.from_signal import FromSignal
from dspark.policies.estimators.margin_logistic import MarginLogistic
from dspark.policies.estimators.position_window import PositionWindow
from dspark.policies.estimators.request_ema import RequestEma
from dspark.types import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dspark.policies.estimators.base import Estimator

ESTIMATORS: Mapping[str, tuple[type[Estimator], Mapping[str, Any]]] = {
    "constant": (Constant, {}),
    "request_ema": (RequestEma, {}),
    "position_window": (PositionWindow, {}),
    "top1": (FromSignal, {"signal": Signal.TOP1_PROBABILITY}),
    "token_probability": (FromSignal, {"signal": Signal.TOKEN_PROBABILITY}),
    "confidence": (FromSignal, {"signal": Signal.CONFIDENCE}),
    "entropy_bound": (EntropyBound, {}),
    "margin_logistic": (MarginLogistic, {}),
}
"""Class and fixed fields of every estimator; its other fields are settings."""

_NUMBERS = {"float": (int, float), "int": (int,)}
_WORDS = {"float": "a number", "int": "a whole number"}


def build_estimator(
    name: str, *, temperatures: Sequence[float] | str | PathLike[str] | None = None, **settings: Any
) -> Estimator:
    """The estimator of this name, with sequential temperature scaling on top if there are temperatures.

    Args:
        name: one of ``ESTIMATORS``.
        temperatures: T_1...T_K, or a file of them, as ``dspark calibrate`` writes it.
        **settings: the estimator's fields.

    Raises:
        ValueError: no such estimator or setting, or a value that is refused.
    """
    if name not in ESTIMATORS:
        raise ValueError(
            f"estimator must be one of {', '.join(ESTIMATORS)}, got {name!r}{_did_you_mean(name, ESTIMATORS)}"
        )
    kind, fixed = ESTIMATORS[name]
    types = {item.name: str(item.type) for item in fields(kind) if item.name not in fixed}  # pyright: ignore
    for key, value in settings.items():
        if key not in types:
            known = ", ".join(types) or "none"
            hint = _did_you_mean(key, types)
            raise ValueError(f"estimator {name} has no setting {key!r}; its settings: {known}{hint}")
        if isinstance(value, bool) or not isinstance(value, _NUMBERS[types[key]]):
            raise ValueError(f"{key} of estimator {name} must be {_WORDS[types[key]]}, got {value!r}")
    estimator = kind(**fixed, **settings)
    if temperatures is None:
        return estimator
    is_file = isinstance(temperatures, str | PathLike)
    values = load_temperatures(temperatures) if is_file else tuple(temperatures)
    return Calibrated(estimator=estimator, temperatures=values)


def _did_you_mean(name: str, choices: Iterable[str]) -> str:
    """The end of a message for a near miss; else nothing."""
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
