"""The drafted positions of a whole batch, most likely accepted first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All B x K positions in the order in which a budget takes them; ``P`` is B * K.

    The candidates come first: positions that were drafted and may survive. Survival never grows
    along a row, and of equal ones the earlier position goes first, so that the first n candidates
    are a prefix of every row.
    """

    survival: Tensor  # float64 [P], descending; 0 past the candidates
    places: Tensor  # int [P], in the table of positions by rows, read position after position
    num_candidates: Tensor  # int, no dimension
    num_rows: int

    def lengths(self, budget: Tensor) -> Tensor:
        """Int [B]: how much of each row is among the first ``budget`` candidates."""
        device = self.places.device
        ranks = torch.arange(self.places.numel(), device=device)
        taken = ranks < torch.minimum(budget, self.num_candidates)
        by_place = torch.zeros_like(taken).scatter(0, self.places, taken)
        return by_place.view(-1, self.num_rows).sum(dim=0)


def rank(survival: Tensor, lengths: Tensor) -> Ranking:
    """The ranking of ``survival`` [B, K] over the drafted ``lengths`` [B].

    Equal survivals are ordered by position, then by row. Nothing about a token decides a tie, so
    the rank of position k does not depend on token k as long as its survival does not.
    """
    num_rows, width = survival.shape
    drafted = torch.arange(1, width + 1, device=survival.device) <= lengths[:, None]
    is_candidate = drafted & (survival > 0)
    by_position = torch.where(is_candidate, survival, 0.0).to(torch.float64).T.reshape(-1)
    ordered, places = by_position.sort(descending=True, stable=True)
    return Ranking(survival=ordered, places=places, num_candidates=is_candidate.sum(), num_rows=num_rows)
