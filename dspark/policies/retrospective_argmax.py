"""The prefix scheduler without its early stop: the rule that DSpark's Appendix A refutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.policies.search import Ranking, arg_max, throughput
from dspark.policies.shared_budget import BudgetState, SharedBudget

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import Draft, LosslessClass, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrospectiveArgmax(SharedBudget):
    """Verify as many positions as maximise the throughput of the batch, judged by this very draft.

    Never use it with sampling. The maximum looks at survivals behind the positions it cuts, and these
    depend on the tokens drawn there: a token that promises a good continuation is verified more often
    than one that does not, and the output leans towards it. Appendix A of DSpark (arXiv 2607.05147)
    gets (0.85, 0.15) for a target of (0.70, 0.30). Class D, so it runs where that cannot happen: under
    coupled verification, greedily, or with a drafter that does not sample. It is here to be audited,
    and as the upper bound of what ``prefix_scheduler`` gives up on a staircase of cost.

    Arguments and errors are those of ``SharedBudget``.
    """

    @property
    def lossless_class(self) -> LosslessClass:
        """D; A with an estimator of the past, which knows nothing of this draft."""
        return self.class_by_knowledge(retrospective=True)

    @property
    def steps_back(self) -> int:
        """0: the live survivals decide."""
        return 0

    def budget(self, ctx: StepContext, draft: Draft, live: Ranking, state: BudgetState) -> Tensor:
        """The best number of positions."""
        return arg_max(throughput(ctx, live, draft.lengths.max()), live.num_candidates)
