"""Who asks for what, and when: the requests of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark.analysis.replay.arrival_log import ArrivalLog
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
    def recorded(
        cls, trace: AcceptanceTrace, log: ArrivalLog, *, speed_up: float = 1.0, seed: int = 0
    ) -> Demand:
        """Requests that come when those of a log came, and are as long as they were, as far as can be.

        Each is the trace's request whose output and prompt tokens, those that the log counts, are
        nearest to the logged ones by ratio: the least sum of absolute differences of log(1 + tokens).
        Among equally near ones, and where the log has no counts, it is drawn.

        Args:
            trace: whose requests they are.
            log: when they came.
            speed_up: how much faster they come than in the log.
            seed: of the draws.

        Raises:
            ValueError: a speed-up that is not positive.
        """
        if not 0 < speed_up < np.inf:
            raise ValueError(f"speed_up must be > 0 and finite, got {speed_up}")
        uniforms = np.random.default_rng([seed, 1]).random(len(log.arrival_s))
        requests = np.empty(len(uniforms), dtype=np.int64)
        for members, near in _nearest(trace, log):
            requests[members] = near[(uniforms[members] * len(near)).astype(np.int64)]
        return cls(requests=requests, arrival_s=log.arrival_s / speed_up)

    @classmethod
    def _drawn(cls, trace: AcceptanceTrace, gaps_s: np.ndarray, seed: int) -> Demand:
        generator = np.random.default_rng([seed, 1])
        requests = generator.integers(trace.num_requests, size=len(gaps_s))
        return cls(requests=requests, arrival_s=np.cumsum(gaps_s))

    @property
    def num_requests(self) -> int:
        """Q."""
        return len(self.requests)


def _nearest(trace: AcceptanceTrace, log: ArrivalLog) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For all logged requests of one size: their places in the log, and the trace's nearest requests."""
    pairs = [
        (logged, ours)
        for logged, ours in (
            (log.output_tokens, trace.output_tokens),
            (log.prompt_tokens, trace.prompt_tokens),
        )
        if logged is not None
    ]
    if not pairs:
        yield np.arange(len(log.arrival_s)), np.arange(trace.num_requests)
        return
    sizes, kinds = np.unique(np.stack([logged for logged, _ in pairs]), axis=1, return_inverse=True)
    ours = np.log1p(np.stack([each for _, each in pairs]))  # [1 or 2, R]
    by_kind = np.argsort(kinds.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(kinds.ravel()))
    for size, members in zip(sizes.T, np.split(by_kind, ends[:-1]), strict=True):
        distance = np.abs(ours - np.log1p(size)[:, None]).sum(0)
        yield members, np.flatnonzero(distance == distance.min())


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
