"""The rows of a replayed batch: who is in which slot, how far, and who joins when one leaves.

The same order as the engine's scheduler: first come, first served, the lowest free slot, and prompt
chunks of the oldest request first.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dspark.analysis.replay.trace import AcceptanceTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """The prompt chunks of a step."""

    num_rows: int
    num_tokens: int
    context_tokens: int  # of these rows, cached before the step
    finishing: tuple[int, ...]  # slots that emit their first token in this step


NO_PREFILL = Prefill(num_rows=0, num_tokens=0, context_tokens=0, finishing=())


class Slots:
    """All requests of a trace waiting at once for ``num_slots`` rows.

    Args:
        trace: of the requests, in the order of their arrival.
        num_slots: B, the largest batch.
        prefill_chunk: prompt tokens that a pass may carry over all rows.
    """

    def __init__(self, trace: AcceptanceTrace, *, num_slots: int, prefill_chunk: int) -> None:
        self._trace, self._chunk = trace, prefill_chunk
        self._next = 0  # request that is admitted next
        self._free = list(range(num_slots))
        self._in_prefill: dict[int, int] = {}  # slot -> cached prompt tokens, in the order of admission
        self.request = np.full(num_slots, -1, dtype=np.int64)
        self.emitted = np.zeros(num_slots, dtype=np.int64)
        self.is_new = np.zeros(num_slots, dtype=bool)
        self._decoding = np.zeros(num_slots, dtype=bool)

    @property
    def has_work(self) -> bool:
        """True while a request waits or runs."""
        return self._next < self._trace.num_requests or len(self._free) < len(self.request)

    @property
    def has_prefill(self) -> bool:
        """True while a prompt is not read whole."""
        return bool(self._in_prefill)

    def admit(self) -> None:
        """Give waiting requests the free slots, the lowest first."""
        while self._free and self._next < self._trace.num_requests:
            slot = heapq.heappop(self._free)
            self.request[slot], self.emitted[slot], self.is_new[slot] = self._next, 0, True
            self._in_prefill[slot] = 0
            self._next += 1

    def decoding(self) -> np.ndarray:
        """Int64 [B]: the slots of the decode rows, ascending."""
        return np.flatnonzero(self._decoding)

    def prefill(self) -> Prefill:
        """The step's prompt chunks, which are read by it."""
        if not self._in_prefill:
            return NO_PREFILL
        budget, num_rows, context, finishing = self._chunk, 0, 0, []
        for slot, cached in list(self._in_prefill.items()):
            if budget == 0:
                break
            prompt = int(self._trace.prompt_tokens[self.request[slot]])
            count = min(budget, prompt - cached)
            budget, num_rows, context = budget - count, num_rows + 1, context + cached
            if cached + count == prompt:
                del self._in_prefill[slot]
                finishing.append(slot)
            else:
                self._in_prefill[slot] = cached + count
        return Prefill(
            num_rows=num_rows,
            num_tokens=self._chunk - budget,
            context_tokens=context,
            finishing=tuple(finishing),
        )

    def commit(self, rows: np.ndarray, emitted: np.ndarray, finishing: tuple[int, ...]) -> None:
        """After a step: what decode rows emitted, and finishing rows' first token; who is done leaves."""
        self.emitted[rows] += emitted
        self.is_new[rows] = False
        joined = list(finishing)
        self.emitted[joined] = 1
        self._decoding[joined] = True
        moved = np.concatenate([rows, np.asarray(joined, dtype=np.int64)])
        done = moved[self.emitted[moved] >= self._trace.output_tokens[self.request[moved]]]
        for slot in done.tolist():
            self._decoding[slot] = False
            self.request[slot] = -1
            heapq.heappush(self._free, slot)
