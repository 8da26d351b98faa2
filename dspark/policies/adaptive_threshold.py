"""A stopping threshold of each request's own that steers its acceptance rate to a target.

Too few drafted tokens accepted: be pickier. Enough of them: be bolder, unless drafts reach the
largest depth as it is. The rule of Draft & Verify (Zhang et al., arXiv 2309.08168), which AdaEDL
took over; here one a row, from a new request's initial values on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What evolves; float64 [num_slots]."""

    threshold: Tensor
    matched: Tensor  # moving average of accepted / verified


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdRule:
    """After a verified draft:

    ``m ← β1·m + (1 − β1)·accepted/verified``; ``t' = t + ε`` if ``m < α``, else ``t`` if the draft had
    the largest depth, else ``t − ε``; ``t ← β2·t + (1 − β2)·t'``.

    m starts at 0, as in the authors' code. t stays in [0, 1], outside of which it would mean the same
    but take as long to come back.

    Args:
        initial: t of a new request, in [0, 1].
        target: α, the acceptance rate to keep, in [0, 1].
        increment: ε, > 0.
        match_decay: β1, weight of the past, in [0, 1).
        threshold_decay: β2, weight of the present threshold, in [0, 1).

    Raises:
        ValueError: a field is outside its range.
    """

    initial: float
    target: float
    increment: float
    match_decay: float
    threshold_decay: float

    def __post_init__(self) -> None:
        checks = (
            (0 <= self.initial <= 1, "threshold", self.initial, "in [0, 1]"),
            (0 <= self.target <= 1, "target", self.target, "in [0, 1]"),
            (0 < self.increment <= 1, "increment", self.increment, "in (0, 1]"),
            (0 <= self.match_decay < 1, "match_decay", self.match_decay, "in [0, 1)"),
            (0 <= self.threshold_decay < 1, "threshold_decay", self.threshold_decay, "in [0, 1)"),
        )
        for holds, name, value, rule in checks:
            if not holds:
                raise ValueError(f"{name} must be {rule}, got {value}")

    def init(self, num_slots: int) -> Thresholds:
        """The initial threshold for every slot."""
        zero = torch.zeros(num_slots, dtype=torch.float64)
        return Thresholds(threshold=zero + self.initial, matched=zero)

    def of_rows(self, ctx: StepContext, state: Thresholds) -> Tensor:
        """Float64 [B], the rows' thresholds; a former occupant's are dropped."""
        return torch.where(ctx.is_new, self.initial, state.threshold.to(ctx.slots.device)[ctx.slots])

    def updated(self, ctx: StepContext, verdict: Verdict, state: Thresholds, depth: int) -> Thresholds:
        """The state after a step; rows without a verified token keep theirs.

        Args:
            ctx: the step.
            verdict: its outcome.
            state: before it.
            depth: the largest depth; a request's own cap counts where it is lower.
        """
        device = ctx.slots.device
        before = self.of_rows(ctx, state)
        matched = torch.where(ctx.is_new, 0.0, state.matched.to(device)[ctx.slots])
        verified = verdict.verify_lengths
        rate = verdict.accepted.double() / verified.clamp(min=1)
        new_matched = self.match_decay * matched + (1 - self.match_decay) * rate
        change = torch.full_like(before, -self.increment)
        change = change.masked_fill(verified >= ctx.depth_caps.clamp(max=depth), 0.0)
        change = change.masked_fill(new_matched < self.target, self.increment)
        after = (before + (1 - self.threshold_decay) * change).clamp(0, 1)
        learnt = verified > 0
        return Thresholds(
            threshold=state.threshold.to(device).index_copy(0, ctx.slots, after.where(learnt, before)),
            matched=state.matched.to(device).index_copy(0, ctx.slots, new_matched.where(learnt, matched)),
        )
