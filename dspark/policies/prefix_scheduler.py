"""DSpark's hardware-aware prefix scheduler, synchronous and causal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.policies.search import Ranking, early_stop, throughput
from dspark.policies.shared_budget import BudgetState, SharedBudget

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import Draft, LosslessClass, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixScheduler(SharedBudget):
    """Verify positions in order of survival for as long as each raises the throughput of the batch.

    Algorithm 1 of DSpark (arXiv 2607.05147): starting from one token a row, the next most likely
    position joins if ``(R + sum of survivals) · SPS(R + number of positions)`` grows by it; the first
    that does not ends the search. Class C with an estimator that precedes the token: whether position
    k is verified depends on positions that rank before it, never on token k or what follows. That is
    what the early stop is for, and its price: on a staircase of cost it may stop at the first step.

    The paper's estimator is the ``confidence`` of DSpark's drafter; ``top1`` goes with any draft model.
    Arguments and errors are those of ``SharedBudget``.
    """

    @property
    def lossless_class(self) -> LosslessClass:
        """C; A with an estimator of the past, D with one that knows the token."""
        return self.class_by_knowledge(retrospective=False)

    @property
    def steps_back(self) -> int:
        """0: the live survivals decide."""
        return 0

    def budget(self, ctx: StepContext, draft: Draft, live: Ranking, state: BudgetState) -> Tensor:
        """Positions before the first one that is no gain."""
        return early_stop(throughput(ctx, live, draft.lengths.max()), live.num_candidates)
