"""A pass of few tokens against the time that reading the weights once takes: the memory floor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from dspark.cost.measured_device import measure_cpu
from dspark.models.base import PassRow
from experiments.bench.ratios import Ratio

if TYPE_CHECKING:
    from dspark.models.target import HFTarget

BAR = 2.0
CONTEXT = 128


@dataclass(frozen=True, kw_only=True)
class Floor:
    """Seconds of passes of one row, and the bytes and bandwidth that bound them."""

    weight_bytes: int
    bandwidth: float  # bytes/s
    seconds: dict[int, float]  # by tokens of the pass, medians

    @property
    def floor_s(self) -> float:
        """Seconds to read every weight once."""
        return self.weight_bytes / self.bandwidth

    def ratios(self) -> list[Ratio]:
        """Passes over the floor, by tokens."""
        return [
            Ratio(
                name=f"pass of {tokens} token{'s' * (tokens > 1)} / weight bytes at read bandwidth",
                batch_size=1,
                value=seconds / self.floor_s,
                bar=BAR,
                upper=True,
                ambition=True,
            )
            for tokens, seconds in self.seconds.items()
        ]


def measure_floor(target: HFTarget, *, tokens: tuple[int, ...] = (1, 4, 8), repeats: int = 15) -> Floor:
    """Bandwidth and passes of one row over ``CONTEXT`` cached tokens, in turn."""
    bandwidth = measure_cpu().memory_bandwidth
    cache = target.new_cache(1, CONTEXT + max(tokens))
    target.forward([PassRow(slot=0, start=0, token_ids=[5] * CONTEXT, num_logits=0)], cache)
    rows = {n: [PassRow(slot=0, start=CONTEXT, token_ids=[7] * n, num_logits=n)] for n in tokens}
    taken: dict[int, list[float]] = {n: [] for n in tokens}
    for repeat in range(repeats + 1):  # the first round warms up
        for n in tokens:
            start = time.perf_counter()
            target.forward(rows[n], cache)
            if repeat:
                taken[n].append(time.perf_counter() - start)
    return Floor(
        weight_bytes=target.weight_bytes,
        bandwidth=bandwidth,
        seconds={n: median(seconds) for n, seconds in taken.items()},
    )
