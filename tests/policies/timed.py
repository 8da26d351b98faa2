"""How long a hook takes."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest_s(call: Callable[[], object], repeats: int = 100) -> float:
    """Seconds of the fastest of many calls: what the machine's other work does not touch."""
    times = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - start_s)
    return min(times)
