"""The contract of a verification rule: how drafts are drawn, and which of them the target keeps.

Shapes: ``R`` rows whose next tokens are decided, the first ``B`` of them with a draft; ``M`` is the
sum of ``1 + verify_lengths``, laid out row after row, so a row's k-th logits (from 0) decide the
token that follows k accepted drafts. A row of verify length 0 is plain decoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.drafters.base import DraftSampler
    from dspark.types import Draft, SamplingParams, Signal, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRow:
    """One row whose next tokens are decided in this step."""

    params: SamplingParams
    tokens: Sequence[int]  # committed, prompt included; read, never changed
    num_prompt: int
    eos_token_ids: tuple[int, ...]
    seed: int

    @property
    def is_greedy(self) -> bool:
        """True where the row's tokens are arg maxima and no random number is used."""
        return self.params.temperature == 0


class Verification(ABC):
    """Abstract; concrete rules are final, immutable and hold no state between steps.

    Rows of temperature 0 are decided by comparing tokens with the target's arg max under every
    lossless rule. A row's decision depends on that row alone, never on its neighbours.
    """

    name: ClassVar[str]
    lossless: ClassVar[bool]  # the output follows the target's law
    unbiased_for_class_d: ClassVar[bool]  # even if a policy drops drafts by the drawn token

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals the rule reads from the draft; the run is refused if the drafter lacks one."""
        return frozenset()

    def check_params(self, params: SamplingParams) -> None:
        """Nothing, if the rule can serve a request with these parameters.

        Raises:
            ValueError: it cannot.
        """
        return None

    def check_depth(self, max_depth: int) -> None:
        """Nothing, if the rule can verify drafts of ``max_depth`` tokens.

        Raises:
            ValueError: it cannot.
        """
        return None

    @abstractmethod
    def draft_sampler(self, rows: Sequence[SampledRow]) -> DraftSampler:
        """The sampler of one step's drafts; its ``rows`` argument indexes these rows."""

    @abstractmethod
    def verify(
        self, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Verdict:
        """Accepted counts and next tokens of R rows.

        Args:
            rows: R rows, those with a draft first.
            draft: drafts of the first B <= R rows; None if no row has one.
            verify_lengths: int [R], drafted tokens the target saw; 0 past row B.
            logits: float [M, V], the target's raw logits.
        """
