"""One step's rows, drafts and logits, addressed by row, as all verification rules read them.

Shapes: see ``base.py``; ``K`` is the largest verify length of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from dspark.sampling import Position, adjust, distribution, is_plain
from dspark.types import NO_TOKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.types import Draft
    from dspark.verification.base import SampledRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one verification decides about; ``select`` narrows it to some of the rows."""

    rows: Sequence[SampledRow]  # R
    sizes: Sequence[int]  # R, 1 + verify length, on the host
    lengths: Tensor  # [R] verify lengths
    first: Tensor  # [R] index in ``logits`` of the row's first position
    tokens: Tensor  # [R, K] drafts
    given: Tensor  # the same where the draft was made: reading them there waits for no device
    logits: Tensor  # [M, V]
    q: Tensor | None  # [B, >=K, V] what the drafts were drawn from; None for point masses
    q_rows: Tensor  # [R] the row's entry in q; meaningless for rows of length 0

    @classmethod
    def of(
        cls, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Step:
        """The step of ``Verification.verify``'s arguments."""
        lengths = verify_lengths.tolist()  # host copy: the engine laid out its pass by these numbers
        sizes = [1 + length for length in lengths]
        assert sum(sizes) == logits.shape[0], f"{logits.shape[0]} logits for {sum(sizes)} positions"
        num_rows, depth = len(rows), max(lengths, default=0)
        given = torch.full((num_rows, depth), NO_TOKEN, device=verify_lengths.device)
        num_drafted = 0
        if draft is not None:
            num_drafted = draft.tokens.shape[0]
            given[:num_drafted] = draft.tokens[:, :depth]
        assert not any(lengths[num_drafted:]), "a row without a draft has a verify length"
        return cls(
            rows=rows,
            sizes=sizes,
            lengths=verify_lengths.to(logits.device),
            first=_starts(sizes, logits.device),
            tokens=given.to(logits.device),
            given=given,
            logits=logits,
            q=None if draft is None else draft.q,
            q_rows=torch.arange(num_rows, device=logits.device).clamp(max=max(num_drafted - 1, 0)),
        )

    def select(self, index: Sequence[int]) -> Step:
        """The step of these rows alone, in this order."""
        starts = list(accumulate(self.sizes, initial=0))
        flat = [m for i in index for m in range(starts[i], starts[i] + self.sizes[i])]
        sizes = [self.sizes[i] for i in index]
        at = torch.tensor(index, device=self.logits.device)
        return Step(
            rows=[self.rows[i] for i in index],
            sizes=sizes,
            lengths=self.lengths[at],
            first=_starts(sizes, self.logits.device),
            tokens=self.tokens[at],
            given=self.given[list(index)],
            logits=self.logits[torch.tensor(flat, device=self.logits.device)],
            q=self.q,
            q_rows=self.q_rows[at],
        )

    def adjusted(self) -> Tensor:
        """Logits [M, V] after penalties and forbidden tokens; not a copy where nothing changes."""
        if all(is_plain(row.params) for row in self.rows):
            return self.logits
        return adjust(self.logits, self._positions())

    def probabilities(self) -> Tensor:
        """The target's p, float [M, V], at every position."""
        positions = self._positions()
        return distribution(adjust(self.logits, positions), positions)

    def _positions(self) -> list[Position]:
        tokens = self.given.tolist()
        return [
            position_after(row, tokens[i][:k])
            for i, row in enumerate(self.rows)
            for k in range(self.sizes[i])
        ]

    def at_depth(self, index: Tensor, depths: Tensor) -> tuple[Tensor, list[Position]]:
        """Adjusted logits [S, V] of rows ``index`` [S] after ``depths`` [S] drafts, and their positions."""
        rows, tokens = index.tolist(), self.given.tolist()
        positions = [
            position_after(self.rows[i], tokens[i][:k]) for i, k in zip(rows, depths.tolist(), strict=True)
        ]
        return adjust(self.logits[self.first[index] + depths], positions), positions


def position_after(row: SampledRow, drafted: Sequence[int]) -> Position:
    """The position that follows a row's committed tokens and ``drafted``."""
    return Position(
        params=row.params,
        prefix=row.tokens,
        drafted=drafted,
        num_prompt=row.num_prompt,
        eos_token_ids=row.eos_token_ids,
    )


def _starts(sizes: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(list(accumulate(sizes, initial=0))[:-1], dtype=torch.int64, device=device)
