"""Synthetic acceptance: accept by chosen rates whatever was drafted. For benchmarks only.

The output follows no model's law and is labelled so (``lossless`` is False).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from dspark.sampling import arg_max, distribution
from dspark.seeding import Purpose
from dspark.types import Signal, Verdict
from dspark.verification.base import Verification
from dspark.verification.draws import Streams, draw_draft, draw_final
from dspark.verification.samplers import RowSampler
from dspark.verification.step import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.drafters.base import DraftSampler
    from dspark.types import Draft
    from dspark.verification.base import SampledRow


@dataclass(frozen=True, slots=True)
class SyntheticAcceptance(Verification):
    """Accept the draft at depth k, given all before it, with probability ``rates[k-1]``.

    Without rates the drafter's own confidence (a conditional acceptance) is the rate. The token
    after the accepted drafts is the target's own choice.

    Raises:
        ValueError: a rate is outside [0, 1], or there is none.
    """

    name: ClassVar[str] = "synthetic"
    lossless: ClassVar[bool] = False
    unbiased_for_class_d: ClassVar[bool] = False

    rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.rates is not None and not self.rates:
            raise ValueError(
                "verification 'synthetic' got an empty list of rates: give one rate a depth, or null to "
                "use the drafter's confidence"
            )
        for k, rate in enumerate(self.rates or (), start=1):
            if not 0 <= rate <= 1:
                raise ValueError(
                    f"rates of verification 'synthetic' must be in [0, 1], got {rate} at depth {k}"
                )

    @property
    def needs(self) -> frozenset[Signal]:
        """The confidence signal, where no rates are given."""
        return frozenset() if self.rates is not None else frozenset({Signal.CONFIDENCE})

    def check_depth(self, max_depth: int) -> None:
        """Nothing, if there is a rate for every depth.

        Raises:
            ValueError: drafts can be longer than the list of rates.
        """
        if self.rates is not None and max_depth > len(self.rates):
            raise ValueError(
                f"verification 'synthetic' has {len(self.rates)} rates, but drafts reach depth {max_depth}: "
                "give one rate a depth, or lower the depth"
            )

    def draft_sampler(self, rows: Sequence[SampledRow]) -> DraftSampler:
        """Independent draws; acceptance looks at no probability, so no q is kept."""
        return RowSampler(rows=rows, draw_token=draw_draft, needs_q=False)

    def verify(
        self, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Verdict:
        """Drafts up to the first that its rate fails, and the target's plain choice after them.

        Raises:
            ValueError: a draft is longer than the list of rates, or lacks the confidence signal.
        """
        step = Step.of(rows, draft, verify_lengths, logits)
        streams = Streams.of(rows, logits.device)
        accepted = torch.zeros_like(step.lengths)
        if draft is not None:
            depths = torch.arange(step.tokens.shape[1], device=logits.device)
            uniforms = streams.uniforms(Purpose.ACCEPT, depths.expand_as(step.tokens))
            passes = uniforms < self._rates(draft, step)
            accepted = (passes & (depths < step.lengths[:, None])).long().cumprod(1).sum(1)
        return Verdict(
            verify_lengths=verify_lengths,
            accepted=accepted,
            next_token=_plain_choice(step, streams, accepted),
        )

    def _rates(self, draft: Draft, step: Step) -> Tensor:
        """Float64 [R, K], the drafts' conditional acceptance."""
        num_rows, depth = step.tokens.shape
        if self.rates is not None:
            self.check_depth(depth)
            return torch.tensor(self.rates[:depth], dtype=torch.float64, device=step.tokens.device).expand(
                num_rows, depth
            )
        confidence = draft.signals.get(Signal.CONFIDENCE)
        if confidence is None:
            raise ValueError(
                "verification 'synthetic' without rates reads the signal 'confidence', which this drafter "
                f"does not give (it gives {sorted(draft.signals) or 'none'}): set rates, or take another"
            )
        rates = torch.zeros(num_rows, depth, dtype=torch.float64, device=step.tokens.device)
        rates[: confidence.shape[0]] = confidence[:, :depth]
        return rates


def _plain_choice(step: Step, streams: Streams, accepted: Tensor) -> Tensor:
    """Int [R]: what plain decoding takes after the accepted drafts."""
    logits, positions = step.at_depth(torch.arange(len(step.rows), device=accepted.device), accepted)
    sampled = [i for i, row in enumerate(step.rows) if not row.is_greedy]
    if not sampled:
        return arg_max(logits)
    tokens = draw_final(distribution(logits, positions), streams, accepted)
    greedy = torch.tensor([row.is_greedy for row in step.rows], device=tokens.device)
    return torch.where(greedy, arg_max(logits), tokens)
