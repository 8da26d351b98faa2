"""This machine's processor as a device: read bandwidth and float32 products, measured."""

from __future__ import annotations

import os
import platform
import statistics
import time
from typing import TYPE_CHECKING

import torch

from dspark.cost.hardware import Device

if TYPE_CHECKING:
    from collections.abc import Callable

_READ_BYTES = 256_000_000  # beyond any cache
_COLUMNS = 1000  # of that array as a matrix
_PRODUCT_SIZE = 1024  # of square matrices: 2.1 GFLOP, enough to reach the peak


def measure_cpu(
    *, read_bytes: int = _READ_BYTES, product_size: int = _PRODUCT_SIZE, repeats: int = 7
) -> Device:
    """The processor at torch's present number of threads; medians of ``repeats``, after a warm-up.

    Bandwidth is that of summing an array too large for the caches, of its product with itself or of a
    matrix-vector product over it, whichever is fastest; FLOP/s that of a product of square
    float32 matrices. Other load on the machine lowers both.

    Args:
        read_bytes: size of the array.
        product_size: n of the n × n matrices.
        repeats: timed runs of each.

    Raises:
        ValueError: a size or the number of repeats is below 1.
    """
    for what, value in {
        "read_bytes": read_bytes // 4,
        "product_size": product_size,
        "repeats": repeats,
    }.items():
        if value < 1:
            raise ValueError(f"{what} is too small to measure")
    values = torch.ones(read_bytes // 4, dtype=torch.float32)
    matrix = torch.ones(product_size, product_size, dtype=torch.float32)
    with torch.inference_mode():
        # no one reads at full speed everywhere: the fastest of three ways to look at every number once
        table = values[: values.numel() // _COLUMNS * _COLUMNS].view(-1, _COLUMNS)
        ways = (lambda: values.sum(), lambda: torch.dot(values, values), lambda: table @ values[:_COLUMNS])
        read_s = min(_median_s(way, repeats) for way in ways)
        product_s = _median_s(lambda: matrix @ matrix, repeats)
    threads = torch.get_num_threads()
    return Device(
        name=f"cpu ({threads} thread{'s' * (threads > 1)})",
        peak_flops={"float32": 2 * product_size**3 / product_s},
        memory_bandwidth=values.numel() * 4 / read_s,
        memory_bytes=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        source=f"measured: {platform.machine()}, torch {torch.__version__}, reads of "
        f"{read_bytes / 1e6:.0f} MB and product of {product_size} × {product_size} float32, "
        f"medians of {repeats}",
    )


def _median_s(work: Callable[[], object], repeats: int) -> float:
    """Median seconds of the work."""
    work()
    taken = []
    for _ in range(repeats):
        started_s = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started_s)
    return statistics.median(taken)
