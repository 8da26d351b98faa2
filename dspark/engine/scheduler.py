"""Who is in the next pass: admission, chunked prefill, and rows that leave and join between steps."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark.engine.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of one step; decode rows in slot order."""

    decode: tuple[Sequence, ...]
    prefill: tuple[tuple[Sequence, int], ...]  # sequence, how many of its prompt tokens now
    finishing: tuple[Sequence, ...]  # prefill rows whose last prompt token is in: they emit their first token


class Scheduler:
    """First come, first served; a row keeps its slot for life.

    Args:
        num_slots: largest batch.
        prefill_chunk: prompt tokens a pass may carry over all rows.
    """

    def __init__(self, *, num_slots: int, prefill_chunk: int) -> None:
        self.prefill_chunk = prefill_chunk
        self.waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}
        self._free_slots = list(range(num_slots))

    @property
    def has_work(self) -> bool:
        """True while a request waits or runs."""
        return bool(self.waiting or self.running)

    def admit(self, reserve: Callable[[Sequence, int], bool]) -> list[Sequence]:
        """Requests that got a slot, lowest first; ``reserve(sequence, slot)`` says if there is room.

        A request reserves room for its whole life, so no running row is ever evicted.
        """
        admitted = []
        while self.waiting and self._free_slots and reserve(self.waiting[0], self._free_slots[0]):
            sequence = self.waiting.popleft()
            sequence.slot = heapq.heappop(self._free_slots)
            self.running[sequence.slot] = sequence
            admitted.append(sequence)
        return admitted

    def schedule(self) -> Batch:
        """All decode rows, and prompt tokens up to the chunk, oldest request first."""
        decode = tuple(
            self.running[slot] for slot in sorted(self.running) if not self.running[slot].in_prefill
        )
        budget = self.prefill_chunk
        prefill = []
        for sequence in self.running.values():  # insertion order is admission order
            if sequence.in_prefill and budget > 0:
                count = min(budget, sequence.num_prompt - sequence.num_cached)
                prefill.append((sequence, count))
                budget -= count
        finishing = tuple(s for s, count in prefill if s.num_cached + count == s.num_prompt)
        return Batch(decode=decode, prefill=tuple(prefill), finishing=finishing)

    def leave(self, sequence: Sequence) -> None:
        """Take a running sequence out and free its slot."""
        del self.running[sequence.slot]
        heapq.heappush(self._free_slots, sequence.slot)

    def find(self, request_id: str) -> Sequence | None:
        """The waiting or running sequence of a request."""
        everyone = (*self.waiting, *self.running.values())
        return next((s for s in everyone if s.request.request_id == request_id), None)
