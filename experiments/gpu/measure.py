"""Seconds of passes and the device's copy bandwidth, by CUDA events or the wall."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch

from dspark.models.base import PassRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark.models.target import HFTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """A pass of ``batch_size`` rows with ``row_tokens`` tokens each, medians over repeats."""

    shape: str
    graphs: bool
    batch_size: int
    row_tokens: int
    context: int
    median_s: float
    floor_s: float  # weight bytes / measured copy bandwidth

    @property
    def ratio(self) -> float:
        """Times the floor."""
        return self.median_s / self.floor_s


def copy_bandwidth(device: torch.device, *, num_bytes: int, repeats: int = 20) -> float:
    """Bytes per second of a copy on the device, each byte counted once as read and once as written."""
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / median(seconds(lambda: target.copy_(source), device, repeats=repeats))


def step_seconds(
    target: HFTarget, *, batch_size: int, row_tokens: int, context: int, repeats: int = 50
) -> float:
    """Median seconds of a pass after ``context`` cached tokens a row, the host's work included.

    The cache's content is zeros: what it holds does not change what is read.
    """
    longest = context + row_tokens
    cache = target.new_cache(batch_size, longest)
    for slot in range(batch_size):
        assert cache.reserve(slot, longest), "a cache is sized for every row"
    tokens = list(range(1, 1 + row_tokens))
    rows = [
        PassRow(slot=slot, start=context, token_ids=tokens, num_logits=row_tokens)
        for slot in range(batch_size)
    ]
    with torch.inference_mode():
        return median(seconds(lambda: target.forward(rows, cache), target.device, repeats=repeats))


def seconds(
    work: Callable[[], object], device: torch.device, *, repeats: int, warm_up: int = 5
) -> list[float]:
    """Wall seconds of each repeat, from before the host begins until the device has ended."""
    times = []
    for repeat in range(warm_up + repeats):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        if repeat >= warm_up:
            times.append(time.perf_counter() - start)
    return times


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
