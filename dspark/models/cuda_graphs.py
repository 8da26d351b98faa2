"""Passes captured as CUDA graphs: one a bucket, replayed whatever the rows and depths are.

An eager pass launches some ten kernels a layer, each a few microseconds of the host; for a small
batch that is longer than the device needs. A graph launches them all at once, but is bound to the
addresses and shapes that it was captured with. So every bucket has a layout of its own, filled again
before each replay, and writes its logits to a buffer of its own size class.

:class:`GraphRunner` does the bookkeeping and knows nothing of CUDA: it is given a ``capture``, which
turns a function into one that repeats it. :class:`CudaCapture` is the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, proxy

import torch

from dspark.models.graph_buckets import Bucket, bucket_of
from dspark.models.layout_varlen import VarlenLayout, empty_layout

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.models.base import PassRow
    from dspark.models.kv_cache import KVCache

Replay = Callable[[], None]
Capture = Callable[[Callable[[], None]], Replay]
Forward = Callable[[VarlenLayout], "Tensor"]

_WARM_UPS = 2
"""Runs before a capture: libraries choose their kernels and workspaces at the first calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Captured:
    """A bucket's graph with the tensors that it reads and writes."""

    layout: VarlenLayout
    logits: Tensor  # float32 [bucket's tokens, V]
    replay: Replay


class GraphRunner:
    """Runs passes as replays, capturing a bucket the first time that a pass falls into it.

    Graphs belong to a cache, whose addresses they hold, and go when it goes.

    Args:
        forward: logits [M, V] of a filled layout, by work on the device alone: no synchronisation, and
            nothing that depends on values on the host.
        capture: makes a function's work repeatable.
        vocab_size: V.
    """

    def __init__(self, forward: Forward, capture: Capture, *, vocab_size: int) -> None:
        self._forward, self._capture, self._vocab_size = forward, capture, vocab_size
        self._captured: WeakKeyDictionary[KVCache, dict[Bucket, _Captured]] = WeakKeyDictionary()
        self._outputs: dict[int, Tensor] = {}  # by size class: graphs never run at the same time
        self.num_captures = 0

    def run(self, rows: list[PassRow], cache: KVCache) -> tuple[Tensor, VarlenLayout] | None:
        """Float32 logits [M, V] and the layout of a pass; None if the pass is not for a graph."""
        bucket = bucket_of(rows, cache)
        if bucket is None:
            return None
        padded = bucket.pad(rows, cache)
        captured = self._captured.setdefault(cache, {}).get(bucket)
        if captured is None:
            captured = self._captured[cache][bucket] = self._new(bucket, cache, padded)
        else:
            captured.layout.fill(padded)
        captured.replay()
        num_logits = sum(row.num_logits for row in rows)
        return captured.logits[:num_logits].clone(), captured.layout  # the next replay overwrites them

    def _new(self, bucket: Bucket, cache: KVCache, padded: list[PassRow]) -> _Captured:
        """Capture a bucket with a real pass in it: running it repeatedly writes the same keys again."""
        layout = empty_layout(bucket.shape(cache), proxy(cache))  # graphs must not keep their cache alive
        layout.fill(padded)
        logits = self._output(bucket.num_tokens, cache.device)

        def work() -> None:
            logits.copy_(self._forward(layout))

        self.num_captures += 1
        return _Captured(layout=layout, logits=logits, replay=self._capture(work))

    def _output(self, num_tokens: int, device: torch.device) -> Tensor:
        """The first rows of a buffer that buckets of about this size share."""
        size = 1 << (num_tokens - 1).bit_length()
        if size not in self._outputs:
            self._outputs[size] = torch.empty(size, self._vocab_size, dtype=torch.float32, device=device)
        return self._outputs[size][:num_tokens]


class CudaCapture:
    """Captures as CUDA graphs that share one memory pool.

    Sharing is safe: replays follow each other on one stream, and what a graph hands out lies in
    buffers outside the pool.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], None]) -> Replay:
        """A function that repeats ``work`` on the device.

        Raises:
            RuntimeError: the work waits for the device, or does something else that no graph can hold.
        """
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            work()
        return graph.replay
