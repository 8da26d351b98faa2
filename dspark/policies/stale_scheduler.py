"""DSpark's asynchronous scheduler: the budget from past drafts, its allocation from the present one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.policies.search import Ranking, arg_max, rank, throughput
from dspark.policies.shared_budget import BudgetState, SharedBudget

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import Draft, LosslessClass, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleScheduler(SharedBudget):
    """How many tokens are verified follows from drafts ``staleness`` steps old, which ones from this one.

    The variant of DSpark (arXiv 2607.05147, §5.2, staleness 2) and of vLLM's adaptive verification
    (https://github.com/vllm-project/vllm/pull/47808, staleness 1, estimator ``margin_logistic``). The
    number maximises ``(R + sum of the n largest old survivals) / seconds(R + n)`` over all n, so that
    a staircase of cost is filled to the edge of a step; a row without a past counts survival 1. The n
    positions with the largest live survival are verified. Class C with an estimator that precedes the
    token: the old drafts are past, and position k is taken or not by what ranks before it.

    Args:
        staleness: steps between the drafts that set the budget and those it is spent on, 1 or 2.

    The other arguments, and errors, are those of ``SharedBudget``.
    """

    staleness: int = 2

    def check(self) -> None:
        """Raises ValueError if the survivals are not one or two steps old."""
        if self.staleness not in (1, 2):
            raise ValueError(f"staleness must be 1 or 2 steps, got {self.staleness}")

    @property
    def lossless_class(self) -> LosslessClass:
        """C; A with an estimator of the past, D with one that knows the token."""
        return self.class_by_knowledge(retrospective=False)

    @property
    def steps_back(self) -> int:
        """``staleness``."""
        return self.staleness

    def budget(self, ctx: StepContext, draft: Draft, live: Ranking, state: BudgetState) -> Tensor:
        """The best number of positions for the old survivals."""
        old = rank(self.recalled(ctx, state)[:, : draft.tokens.shape[1]], draft.lengths)
        return arg_max(throughput(ctx, old, draft.lengths.max()), old.num_candidates)
