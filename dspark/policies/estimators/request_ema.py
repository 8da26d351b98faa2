"""An acceptance rate for each request, from its own recent drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.estimators.base import Estimator, require_probability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Signal, StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Discounted counts of each slot's occupant; float64 [num_slots]."""

    accepted: Tensor
    reached: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEma(Estimator):
    """Exponential moving average of a request's conditional acceptance, the same at every position.

    Accepted and reached tokens are averaged separately and then divided: a mean of the steps' own
    rates would be biased, as a rejection ends its step (at an acceptance of 0.7 and depth 4 the
    mean rate is 0.52). A step in which nothing of the row was verified changes nothing. The weights
    are those of SmartSpec (arXiv 2406.14066): 0.85 for the past, 0.7 at the start.

    Args:
        decay: weight of the past, in [0, 1); 0 knows the last step only.
        initial: rate of a new request.
        prior: how many reached tokens ``initial`` counts for, > 0; it fades with the rest.

    Raises:
        ValueError: a field is outside its range.
    """

    decay: float = 0.85
    initial: float = 0.7
    prior: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {self.decay}")
        require_probability(self.initial, "initial")
        if not self.prior > 0:
            raise ValueError(f"prior must be > 0 tokens, got {self.prior}")

    def init(self, num_slots: int, max_depth: int) -> RequestCounts:
        """``initial`` for every slot, as if ``prior`` tokens had been seen."""
        reached = torch.full((num_slots,), float(self.prior), dtype=torch.float64)
        return RequestCounts(accepted=reached * self.initial, reached=reached)

    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: RequestCounts
    ) -> Tensor:
        """Float64 [B, width]; the columns are equal."""
        accepted, reached = self._counts(ctx, state)
        return (accepted / reached)[:, None].expand(-1, width)

    def observe(self, ctx: StepContext, verdict: Verdict, state: RequestCounts) -> RequestCounts:
        """Counts with the step's added; a new request starts from ``initial``."""
        accepted, reached = self._counts(ctx, state)
        num_accepted = verdict.accepted.double()
        num_reached = torch.minimum(verdict.accepted + 1, verdict.verify_lengths).double()
        kept = torch.ones_like(reached).masked_fill(num_reached > 0, self.decay)
        device = ctx.slots.device
        return RequestCounts(
            accepted=state.accepted.to(device).index_copy(0, ctx.slots, kept * accepted + num_accepted),
            reached=state.reached.to(device).index_copy(0, ctx.slots, kept * reached + num_reached),
        )

    def _counts(self, ctx: StepContext, state: RequestCounts) -> tuple[Tensor, Tensor]:
        """Accepted and reached float64 [B]; a former occupant's are dropped."""
        accepted = state.accepted.to(ctx.slots.device)[ctx.slots]
        reached = state.reached.to(ctx.slots.device)[ctx.slots]
        return (
            torch.where(ctx.is_new, self.prior * self.initial, accepted),
            torch.where(ctx.is_new, self.prior, reached),
        )
