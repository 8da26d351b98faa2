"""Features of the target that a drafter has been handed and has not used yet, by slot and position.

A drafter that reads the target's hidden states is handed those of every pass, and needs them only
when it drafts. Keeping them is a few list operations a step, so that a pause at depth 0 costs
nothing; taking them out is one concatenation a row. Features of rejected tokens are overwritten by
position: the next pass of a row starts where its committed tokens end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.models.base import PassRow


class PendingFeatures:
    """Features [n, width] of consecutive positions, one run a slot.

    Args:
        num_slots: rows.
        max_tokens: rows longer than this are not drafted for any more, so nothing is kept of them.
    """

    def __init__(self, num_slots: int, max_tokens: int | None = None) -> None:
        self._max_tokens = max_tokens
        self._pieces: list[list[tuple[int, Tensor]]] = [[] for _ in range(num_slots)]

    def put(self, rows: Sequence[PassRow], features: Tensor) -> None:
        """Keep what a pass gave.

        Args:
            rows: of the pass.
            features: float [N, width], the rows' tokens one after another. A row's share of a pass of
                several is copied: a view would keep the whole pass as long as the row does not draft.
        """
        counts = [len(row.token_ids) for row in rows]
        for row, piece in zip(rows, features.split(counts), strict=True):
            if self._max_tokens is not None and row.start >= self._max_tokens:
                self.forget(row.slot)
                continue
            pieces = self._pieces[row.slot]
            while pieces and pieces[-1][0] >= row.start:
                pieces.pop()
            if pieces:
                first, last = pieces[-1]
                if first + last.shape[0] > row.start:
                    pieces[-1] = (first, last[: row.start - first].clone())
            pieces.append((row.start, piece if len(rows) == 1 else piece.clone()))

    def take(self, slot: int, start: int, stop: int) -> Tensor:
        """Features [stop - start, width] of positions ``start`` to ``stop``; what lies before is forgotten.

        The last of them stays, so that a row can be drafted for again from the same tokens.
        """
        pieces = self._pieces[slot]
        found = [
            piece[max(0, start - first) : stop - first]
            for first, piece in pieces
            if first < stop and first + piece.shape[0] > start
        ]
        assert sum(piece.shape[0] for piece in found) == stop - start, (
            f"slot {slot} lacks features of positions {start} to {stop}: it was not handed every pass"
        )
        later = [
            (max(first, stop), piece[max(0, stop - first) :])
            for first, piece in pieces
            if first + piece.shape[0] > stop
        ]
        last = found[-1][-1:].clone()  # a view would hold on to the whole pass
        self._pieces[slot] = [(stop - 1, last), *later]
        return found[0] if len(found) == 1 else torch.cat(found)

    def forget(self, slot: int) -> None:
        """Nothing is kept of the slot: its row has left."""
        self._pieces[slot] = []
