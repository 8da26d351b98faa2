"""A rule that looks at whole drafts and keeps none of them, so that every position is seen.

For counterfactual traces: a request moves on by one token a step, its own next one, and what would have
been accepted at each position is told on the side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from dspark.verification.base import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from dspark.drafters.base import DraftSampler
    from dspark.types import Draft, SamplingParams, Signal, Verdict
    from dspark.verification.base import SampledRow

INDEPENDENT = ("greedy", "coupled")
"""Rules under which a request's text, and what would be drafted behind each beginning, ask for no draft."""


@dataclass(frozen=True, slots=True)
class Recording(Verification):
    """Decides as ``inner`` does, tells ``tell`` its accepted counts [R], and emits one token a row.

    Args:
        inner: greedy or coupled.
        tell: called once a step, before the verdict is given.

    Raises:
        ValueError: under the rule a text depends on its drafts.
    """

    inner: Verification
    tell: Callable[[Tensor], None]

    name: ClassVar[str] = "recording"
    lossless: ClassVar[bool] = True
    unbiased_for_class_d: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.inner.name not in INDEPENDENT:
            raise ValueError(
                f"a trace needs verification {' or '.join(INDEPENDENT)}, under which the text does not "
                f"depend on the drafts, got {self.inner.name}"
            )

    @property
    def needs(self) -> frozenset[Signal]:
        """The inner rule's."""
        return self.inner.needs

    def check_params(self, params: SamplingParams) -> None:
        """The inner rule's.

        Raises:
            ValueError: see there.
        """
        self.inner.check_params(params)

    def draft_sampler(self, rows: Sequence[SampledRow]) -> DraftSampler:
        """The inner rule's."""
        return self.inner.draft_sampler(rows)

    def verify(
        self, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Verdict:
        """No draft is accepted; the next token is the one that the inner rule decided to come first."""
        verdict = self.inner.verify(rows, draft, verify_lengths, logits)
        self.tell(verdict.accepted)
        if draft is None or draft.tokens.shape[1] == 0:
            return verdict
        count = len(draft.tokens)  # rows past these have no draft
        first = verdict.next_token.clone()
        kept = verdict.accepted[:count] > 0
        first[:count] = torch.where(kept, draft.tokens[:, 0].to(first.device), first[:count])
        return replace(verdict, accepted=torch.zeros_like(verdict.accepted), next_token=first)
