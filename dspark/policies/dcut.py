"""D-Cut: one of a few budgets for the whole batch, each a share of what was drafted."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from dspark.policies.search import Ranking, buckets, rank, throughput
from dspark.policies.shared_budget import BudgetState, SharedBudget

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import Draft, LosslessClass, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class DCut(SharedBudget):
    """Verify the share of the drafted tokens that promises most accepted tokens a second.

    D-Cut (arXiv 2607.14647): ``K_q = ceil(ρ_q · number of drafted tokens)``, and the largest
    ``sum of the K_q largest survivals / seconds(R + K_q)`` wins; so few shapes suit an engine with
    captured graphs. The rows' own tokens are not counted, as there; ``count_bonus`` counts them.

    With ``staleness`` 0, as published, the choice looks at survivals of this draft behind the
    positions it cuts. The paper's drafters fill a whole block in parallel, so that no survival depends
    on a token of the block; where one does (draft models, DSpark's drafter), that is a retrospective
    maximum, which biases sampling. A policy cannot tell, so this is class D: it runs where no bias can
    arise. With ``staleness`` 1 or 2 the share is chosen by drafts that many steps old, and it is class
    C with an estimator that precedes the token.

    Args:
        ratios: the shares, ascending, in (0, 1].
        staleness: steps between the drafts that choose the share and those that are cut, 0 to 2.
        count_bonus: maximise all tokens a second, not just the accepted ones.

    The other arguments, and errors, are those of ``SharedBudget``.
    """

    estimator: str = "top1"
    ratios: list[float] = field(default_factory=lambda: [0.25, 0.5, 0.75, 1.0])
    staleness: int = 0
    count_bonus: bool = False

    def check(self) -> None:
        """Raises ValueError if there is no share, one is none, or the survivals are too old."""
        shares = list(self.ratios)
        in_range = bool(shares) and all(0 < share <= 1 for share in shares)
        if not in_range or any(larger <= share for share, larger in pairwise(shares)):
            raise ValueError(f"ratios must ascend in (0, 1], got {shares}")
        if self.staleness not in (0, 1, 2):
            raise ValueError(f"staleness must be 0, 1 or 2 steps, got {self.staleness}")

    @property
    def lossless_class(self) -> LosslessClass:
        """D with staleness 0, else C; A with an estimator of the past, D with one that knows the token."""
        return self.class_by_knowledge(retrospective=self.staleness == 0)

    @property
    def steps_back(self) -> int:
        """``staleness``."""
        return self.staleness

    def budget(self, ctx: StepContext, draft: Draft, live: Ranking, state: BudgetState) -> Tensor:
        """The best of the shares, in tokens."""
        ranking = live
        if self.staleness:
            ranking = rank(self.recalled(ctx, state)[:, : draft.tokens.shape[1]], draft.lengths)
        values = throughput(ctx, ranking, draft.lengths.max(), with_bonus=self.count_bonus)
        shares = torch.tensor(self.ratios, dtype=torch.float64, device=values.device)
        # 0.1 of 10 is a hair above 1 in floating point
        sizes = (shares * draft.lengths.sum() - 1e-9).ceil().to(torch.int64)
        return buckets(values, torch.minimum(sizes, ranking.num_candidates))
