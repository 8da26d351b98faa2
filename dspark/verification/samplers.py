"""How drafters draw: one sampler a step, made by the verification rule that will judge the drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.sampling import adjust, arg_max, distribution
from dspark.verification.draws import Draw, Streams
from dspark.verification.step import position_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.verification.base import SampledRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSampler:
    """A ``DraftSampler`` whose sampled rows draw by ``draw_token`` and greedy rows by arg max."""

    rows: Sequence[SampledRow]
    draw_token: Draw
    needs_q: bool

    def draw(self, rows: Tensor, k: int, logits: Tensor, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens int [R] at depth k (from 1), and q float [R, V] if it is needed.

        Args:
            rows: int [R], which of the step's rows.
            k: depth of the position drawn.
            logits: float [R, V], the drafter's raw logits; not changed.
            drafted: int [R, k-1], drafts before this one.
        """
        picked = [self.rows[i] for i in rows.tolist()]
        positions = [
            position_after(row, before) for row, before in zip(picked, drafted.tolist(), strict=True)
        ]
        logits = adjust(logits, positions)
        sampled = [j for j, row in enumerate(picked) if not row.is_greedy]
        if len(sampled) == len(picked):
            q = distribution(logits, positions)
            return self._draw(q, picked, k), q if self.needs_q else None
        tokens = arg_max(logits)
        q = torch.zeros_like(logits).scatter_(1, tokens[:, None], 1.0) if self.needs_q else None
        if sampled:
            at = torch.tensor(sampled, device=logits.device)
            q_sampled = distribution(logits[at], [positions[j] for j in sampled])
            tokens[at] = self._draw(q_sampled, [picked[j] for j in sampled], k)
            if q is not None:
                q[at] = q_sampled
        return tokens, q

    def _draw(self, q: Tensor, rows: Sequence[SampledRow], k: int) -> Tensor:
        streams = Streams.of(rows, q.device)
        return self.draw_token(q, streams, torch.full_like(streams.seeds, k - 1))
