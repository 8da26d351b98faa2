"""Rejection sampling, token by token and block by block: exact for the target's law.

The rules need q as sampled from; drafts without one are point masses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from dspark.seeding import Purpose
from dspark.verification.acceptance import AcceptanceLaw, BlockLaw, Evidence, TokenLaw
from dspark.verification.base import Verification
from dspark.verification.decision import Decision, decide
from dspark.verification.draws import Streams, draw_draft, draw_final
from dspark.verification.samplers import RowSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.drafters.base import DraftSampler
    from dspark.types import Draft, Verdict
    from dspark.verification.base import SampledRow
    from dspark.verification.step import Step


@dataclass(frozen=True, slots=True)
class Rejection(Verification):
    """Token-wise rejection sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318)."""

    name: ClassVar[str] = "rejection"
    lossless: ClassVar[bool] = True
    unbiased_for_class_d: ClassVar[bool] = False

    def draft_sampler(self, rows: Sequence[SampledRow]) -> DraftSampler:
        """Independent draws; q is kept as soon as one row is sampled."""
        return _independent_sampler(rows)

    def verify(
        self, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Verdict:
        """Drafts up to the first rejection, and a token of the residual or of p."""
        return decide(rows, draft, verify_lengths, logits, sampled=partial(_judge, law=TokenLaw()))


@dataclass(frozen=True, slots=True)
class Block(Verification):
    """Block verification (Sun et al., arXiv 2403.10444): never accepts fewer than token by token."""

    name: ClassVar[str] = "block"
    lossless: ClassVar[bool] = True
    unbiased_for_class_d: ClassVar[bool] = False

    def draft_sampler(self, rows: Sequence[SampledRow]) -> DraftSampler:
        """Independent draws; q is kept as soon as one row is sampled."""
        return _independent_sampler(rows)

    def verify(
        self, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Verdict:
        """The longest prefix that passes, and a token of its residual or of p."""
        return decide(rows, draft, verify_lengths, logits, sampled=partial(_judge, law=BlockLaw()))


def _independent_sampler(rows: Sequence[SampledRow]) -> DraftSampler:
    return RowSampler(rows=rows, draw_token=draw_draft, needs_q=not all(row.is_greedy for row in rows))


def _judge(step: Step, *, law: AcceptanceLaw) -> Decision:
    seen = Evidence(
        p=step.probabilities(),
        first=step.first,
        tokens=step.tokens,
        lengths=step.lengths,
        q=step.q,
        q_rows=step.q_rows,
    )
    streams = Streams.of(step.rows, step.logits.device)
    uniforms = streams.uniforms(Purpose.ACCEPT, seen.depths.expand_as(step.tokens))
    accepted = law.select(uniforms, law.acceptance(seen))
    return Decision(accepted, draw_final(law.final(seen, accepted), streams, accepted))
