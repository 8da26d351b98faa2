"""Who asks for what, and when: the requests of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dspark.analysis.replay.trace import AcceptanceTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Q requests in the order of their arrival, each a request of a trace; one may come many times.

    Raises:
        ValueError: no request, times that go back, or not one time a request.
    """

    requests: np.ndarray  # int64 [Q], numbers of the trace's requests
    arrival_s: np.ndarray  # float64 [Q], seconds from the start, ascending

    def __post_init__(self) -> None:
        if self.requests.shape != self.arrival_s.shape or len(self.requests) == 0:
            raise ValueError(
                "a demand needs a request and one arrival time for each, got "
                f"{len(self.requests)} requests and {len(self.arrival_s)} times"
            )
        if self.arrival_s[0] < 0 or bool((np.diff(self.arrival_s) < 0).any()):
            raise ValueError("arrival times must be >= 0 and ascend, got times that go back")

    @classmethod
    def all_at_once(cls, trace: AcceptanceTrace) -> Demand:
        """The trace's requests once each, waiting from the start."""
        return cls(requests=np.arange(trace.num_requests), arrival_s=np.zeros(trace.num_requests))

    @classmethod
    def poisson(cls, trace: AcceptanceTrace, *, num_requests: int, rate_per_s: float, seed: int) -> Demand:
        """Requests drawn from the trace at random, in a Poisson process.

        Raises:
            ValueError: a number that is not positive.
        """
        return cls._drawn(trace, _gaps(num_requests, rate_per_s, 1.0, seed), seed)

    @classmethod
    def bursty(
        cls, trace: AcceptanceTrace, *, num_requests: int, rate_per_s: float, burstiness: float, seed: int
    ) -> Demand:
        """As :meth:`poisson`, with gaps whose variance is ``burstiness`` times as large (a Gamma process).

        Raises:
            ValueError: a number that is not positive.
        """
        return cls._drawn(trace, _gaps(num_requests, rate_per_s, burstiness, seed), seed)

    @classmethod
    def _drawn(cls, trace: AcceptanceTrace, gaps_s: np.ndarray, seed: int) -> Demand:
        generator = np.random.default_rng([seed, 1])
        requests = generator.integers(trace.num_requests, size=len(gaps_s))
        return cls(requests=requests, arrival_s=np.cumsum(gaps_s))

    @property
    def num_requests(self) -> int:
        """Q."""
        return len(self.requests)


def _gaps(num_requests: int, rate_per_s: float, burstiness: float, seed: int) -> np.ndarray:
    for name, value in (
        ("num_requests", num_requests),
        ("rate_per_s", rate_per_s),
        ("burstiness", burstiness),
    ):
        if not value > 0:
            raise ValueError(f"{name} must be > 0, got {value}")
    generator = np.random.default_rng([seed, 0])
    shape = 1 / burstiness  # squared coefficient of variation of a Gamma variable is 1 / shape
    return generator.gamma(shape, 1 / (rate_per_s * shape), size=num_requests)
