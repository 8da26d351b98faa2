"""When requests arrive: all at once, or as a Poisson process."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np


class Arrivals(ABC):
    """Arrival times as a pure function of the number of requests."""

    @abstractmethod
    def arrival_times_s(self, num_requests: int) -> list[float]:
        """Seconds after the run's start, one a request, not decreasing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop(Arrivals):
    """Every request waits from the start, so ``batch_size`` of them run until few are left.

    Raises:
        ValueError: ``batch_size`` is less than 1.
    """

    batch_size: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be >= 1, got {self.batch_size!r}")

    def arrival_times_s(self, num_requests: int) -> list[float]:
        """Zeros, one a request."""
        return [0.0] * num_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Arrivals):
    """Independent exponential gaps with mean ``1 / rate_per_s``, the first one before request 0.

    Raises:
        ValueError: ``rate_per_s`` is not a positive number, or ``seed`` is negative.
    """

    rate_per_s: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.rate_per_s > 0 and math.isfinite(self.rate_per_s)):
            raise ValueError(
                f"rate_per_s must be > 0 requests a second, got {self.rate_per_s!r}: "
                "for all requests at once use a closed loop"
            )
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed!r}")

    def arrival_times_s(self, num_requests: int) -> list[float]:
        """Seconds, increasing; the first n are the same for every ``num_requests`` >= n."""
        # inverting uniforms, and not Generator.exponential, whose method numpy may change
        uniforms = np.random.Generator(np.random.PCG64(self.seed)).random(num_requests)
        return np.cumsum(-np.log1p(-uniforms) / self.rate_per_s).tolist()
