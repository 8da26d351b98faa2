"""The settings of `dspark calibrate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateConfig:
    """Which estimator is calibrated, on drafts of which depth, and how it is judged.

    Raises:
        ValueError: a number is out of range.
    """

    estimator: str
    settings: Mapping[str, Any] | None  # of the estimator, by field; what is left out has its default
    depth: int  # of every draft, all of it verified
    fit_fraction: float  # share of the requests that temperatures are fitted on
    num_bins: int  # of the expected calibration error
    min_samples: int  # positions that fewer drafts reach are marked, and not fitted
    seed: int  # of the split

    def __post_init__(self) -> None:
        for name in ("depth", "num_bins", "min_samples"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        if not 0 < self.fit_fraction < 1:
            raise ValueError(f"fit_fraction must be in (0, 1), got {self.fit_fraction}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")
