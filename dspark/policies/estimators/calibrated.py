"""Any estimator with temperatures on top (sequential temperature scaling)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dspark.policies.estimators.base import Estimator
from dspark.policies.estimators.temperature_scaling import scaled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from torch import Tensor

    from dspark.policies.base import State
    from dspark.types import Signal, StepContext, Verdict

SCHEMA = 1
"""Version of the file of temperatures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated(Estimator):
    """``c'_k = sigmoid(logit(c_k) / T_k)`` of another estimator's c (DSpark, arXiv 2607.05147, STS).

    Knows and needs what the estimator below does. The temperatures come from ``fit_temperatures``.

    Raises:
        ValueError: there is no temperature, or one is not a positive number.
    """

    estimator: Estimator
    temperatures: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.temperatures or not all(0 < t < math.inf for t in self.temperatures):
            raise ValueError(
                f"temperatures must be numbers > 0, one a position, got {list(self.temperatures)}"
            )

    @property
    def needs(self) -> frozenset[Signal]:
        """The estimator's."""
        return self.estimator.needs

    def init(self, num_slots: int, max_depth: int) -> State:
        """The estimator's state.

        Raises:
            ValueError: there are more positions than temperatures.
        """
        if max_depth > len(self.temperatures):
            raise ValueError(
                f"temperatures cover {len(self.temperatures)} positions, and drafts have up to {max_depth}:"
                f" calibrate to depth {max_depth}, or draft less"
            )
        return self.estimator.init(num_slots, max_depth)

    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: State
    ) -> Tensor:
        """Float64 [B, width], the estimator's answer at its position's temperature."""
        raw = self.estimator.conditional(ctx, signals, width, state)
        return scaled(raw, raw.new_tensor(self.temperatures[:width]))

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The estimator's state after the step."""
        return self.estimator.observe(ctx, verdict, state)

    def warming_up(self, state: State) -> bool:
        """Whether the estimator is."""
        return self.estimator.warming_up(state)


def load_temperatures(path: str | PathLike[str]) -> tuple[float, ...]:
    """The temperatures of a file ``{"schema": 1, "temperatures": [T_1, ..., T_K], ...}``.

    Raises:
        ValueError: the file cannot be read, or is none of these.
    """
    try:
        written = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"temperatures: cannot read {path}: {error}") from error
    if not isinstance(written, dict) or written.get("schema") != SCHEMA:
        raise ValueError(
            f"temperatures: {path} is not a file of schema {SCHEMA}; write one with dspark calibrate"
        )
    temperatures = written.get("temperatures")
    if not isinstance(temperatures, list) or not all(type(t) in (int, float) for t in temperatures):
        raise ValueError(f"temperatures: {path} holds no list of numbers under 'temperatures'")
    return tuple(float(t) for t in temperatures)
