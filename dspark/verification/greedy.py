"""Greedy verification: token matching, for requests of temperature 0 only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dspark.verification.base import Verification
from dspark.verification.decision import decide
from dspark.verification.draws import draw_draft
from dspark.verification.samplers import RowSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.drafters.base import DraftSampler
    from dspark.types import Draft, SamplingParams, Verdict
    from dspark.verification.base import SampledRow
    from dspark.verification.decision import Decision
    from dspark.verification.step import Step


@dataclass(frozen=True, slots=True)
class Greedy(Verification):
    """Keep drafts that equal the target's arg max; no random number is used."""

    name: ClassVar[str] = "greedy"
    lossless: ClassVar[bool] = True
    unbiased_for_class_d: ClassVar[bool] = True

    def check_params(self, params: SamplingParams) -> None:
        """Nothing, for greedy requests.

        Raises:
            ValueError: the temperature is above 0.
        """
        if params.temperature > 0:
            raise ValueError(
                "verification 'greedy' compares drafts with the target's arg max, so every request needs "
                f"temperature 0, got {params.temperature}: set temperature to 0, or use verification "
                "'rejection', 'block' or 'coupled'"
            )

    def draft_sampler(self, rows: Sequence[SampledRow]) -> DraftSampler:
        """Arg maxima of the drafter's logits; no q is kept.

        Raises:
            ValueError: a row's temperature is above 0.
        """
        for row in rows:
            self.check_params(row.params)
        return RowSampler(rows=rows, draw_token=draw_draft, needs_q=False)

    def verify(
        self, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Verdict:
        """Drafts up to the first that is not the target's arg max, and that arg max.

        Raises:
            ValueError: a row's temperature is above 0.
        """
        for row in rows:
            self.check_params(row.params)
        return decide(rows, draft, verify_lengths, logits, sampled=_unreachable)


def _unreachable(step: Step) -> Decision:
    raise AssertionError(f"{len(step.rows)} sampled rows passed the temperature check")
