"""How long a hook takes, and how long it may take on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

NOMINAL_S = 0.66e-3
"""Seconds of the reference on the machine that bars are written for.

Compared by the decision of `dsde` for 256 rows: 0.6 ms there, 1.06 ms where the reference takes 1.13 ms.
"""


def fastest_s(call: Callable[[], object], repeats: int = 100) -> float:
    """Seconds of the fastest of many calls: what the machine's other work does not touch."""
    times = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - start_s)
    return min(times)


def bar_s(nominal_s: float) -> float:
    """What ``nominal_s`` is here: longer on a slower machine, in proportion, and never shorter."""
    return nominal_s * max(1.0, fastest_s(_reference) / NOMINAL_S)


def _reference() -> None:
    """Small tensor operations of the kind that decisions are made of."""
    x = torch.rand(256, 8, generator=torch.Generator().manual_seed(0))
    for _ in range(4):
        x.flatten().sort(descending=True).values.cumsum(0)
        torch.where(x > 0.5, x, x * 2).cumprod(1).sum(1)
        x.gather(1, (x * 8).long().clamp(max=7)).max(1)
