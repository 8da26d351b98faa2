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
    from dspark.analysis.replay.demand import Demand
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
    """Requests that come, wait for one of ``num_slots`` rows and for room, run, and leave.

    Args:
        trace: of the requests.
        demand: which of them come, and when.
        num_slots: B, the largest batch.
        prefill_chunk: prompt tokens that a pass may carry over all rows.
        cache_tokens: tokens that all rows can hold together; None: enough. A request reserves room for
            its whole life, as in the engine.

    Raises:
        ValueError: a request that is larger than the whole cache.
    """

    def __init__(
        self,
        trace: AcceptanceTrace,
        demand: Demand,
        *,
        num_slots: int,
        prefill_chunk: int,
        cache_tokens: int | None = None,
    ) -> None:
        largest = int(trace.max_tokens[demand.requests].max())
        if cache_tokens is not None and largest > cache_tokens:
            raise ValueError(
                f"cache_tokens must hold the largest request, {largest} tokens, got {cache_tokens}"
            )
        self._trace, self._demand, self._chunk = trace, demand, prefill_chunk
        self._room = None if cache_tokens is None else cache_tokens
        self._next = 0  # place in the demand that is admitted next
        self._free = list(range(num_slots))
        self.place = np.full(num_slots, -1, dtype=np.int64)  # of each slot's request in the demand
        self._in_prefill: dict[int, int] = {}  # slot -> cached prompt tokens, in the order of admission
        self.request = np.full(num_slots, -1, dtype=np.int64)
        self.emitted = np.zeros(num_slots, dtype=np.int64)
        self.is_new = np.zeros(num_slots, dtype=bool)
        self._decoding = np.zeros(num_slots, dtype=bool)

    @property
    def has_work(self) -> bool:
        """True while a request waits or runs."""
        return self._next < self._demand.num_requests or len(self._free) < len(self.request)

    @property
    def next_arrival_s(self) -> float:
        """When the next request comes that is not admitted yet; infinite if none is left."""
        if self._next == self._demand.num_requests:
            return np.inf
        return float(self._demand.arrival_s[self._next])

    @property
    def is_idle(self) -> bool:
        """True while nobody runs."""
        return len(self._free) == len(self.request)

    def admit(self, now_s: float) -> None:
        """Give requests that have come the free slots, lowest first, in order, while there is room."""
        while self._free and self.next_arrival_s <= now_s:
            number = int(self._demand.requests[self._next])
            needed = int(self._trace.max_tokens[number])
            if self._room is not None:
                if needed > self._room:
                    break
                self._room -= needed
            slot = heapq.heappop(self._free)
            self.request[slot], self.emitted[slot], self.is_new[slot] = number, 0, True
            self.place[slot] = self._next
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

    def commit(self, rows: np.ndarray, emitted: np.ndarray, finishing: tuple[int, ...]) -> np.ndarray:
        """After a step: what decode rows emitted, and finishing rows' first token; who is done leaves.

        Returns:
            Int64: places in the demand of those who left.
        """
        self.emitted[rows] += emitted
        self.is_new[rows] = False
        joined = list(finishing)
        self.emitted[joined] = 1
        self._decoding[joined] = True
        moved = np.concatenate([rows, np.asarray(joined, dtype=np.int64)])
        done = moved[self.emitted[moved] >= self._trace.output_tokens[self.request[moved]]]
        if self._room is not None:
            self._room += int(self._trace.max_tokens[self.request[done]].sum())
        left = self.place[done]
        for slot in done.tolist():
            self._decoding[slot] = False
            self.request[slot] = self.place[slot] = -1
            heapq.heappush(self._free, slot)
        return left
