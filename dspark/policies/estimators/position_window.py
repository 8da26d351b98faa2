"""An acceptance rate for each position, from the last steps of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.estimators.base import Estimator, observed, require_probability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Signal, StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCounts:
    """A ring of the last steps' counts, summed over rows; float64 [window, K]."""

    accepted: Tensor
    reached: Tensor
    num_steps: int  # written so far; the next goes to num_steps % window


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionWindow(Estimator):
    """Conditional acceptance of each position over the last ``window`` steps, the same for all rows.

    This is the window of SGLang's throughput-aware controller (20 batches, shared by all batch sizes;
    https://github.com/sgl-project/sglang, ``throughput_aware_spec_params.py``), kept as counts: where
    all rows are verified equally deep, the product of the rates is the share of rows that accepted so
    far, its unconditional rate. A step in which nothing was verified is not counted.

    A position that no row reached in these steps continues the known ones geometrically: survival
    falls by ``(a_n / a_1)^(1 / (n - 1))`` a position, the geometric mean of the known rates but the
    first. With one known position survival does not fall; such optimism makes a policy try the deeper
    ones. With none, every position has ``initial``.

    Args:
        window: steps to look back, >= 1.
        initial: rate before anything was verified.

    Raises:
        ValueError: a field is outside its range.
    """

    window: int = 20
    initial: float = 0.7

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be >= 1 steps, got {self.window}")
        require_probability(self.initial, "initial")

    def init(self, num_slots: int, max_depth: int) -> PositionCounts:
        """An empty ring."""
        empty = torch.zeros(self.window, max_depth, dtype=torch.float64)
        return PositionCounts(accepted=empty, reached=empty, num_steps=0)

    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: PositionCounts
    ) -> Tensor:
        """Float64 [B, width]; the rows are equal."""
        accepted = state.accepted.to(ctx.slots.device).sum(dim=0)
        reached = state.reached.to(ctx.slots.device).sum(dim=0)
        known = reached > 0  # the first n positions: who reaches k has reached all before it
        rates = accepted / reached.clamp(min=1)
        num_ratios = (known.sum() - 1).clamp(min=0)
        # in logarithms 0 is -inf, and exp brings it back
        total = torch.where(known, rates, 1.0)[1:].log().sum()
        ratio = torch.where(num_ratios > 0, (total / num_ratios.clamp(min=1)).exp(), 1.0)
        ratio = torch.where(known[:1].any(), ratio, self.initial)
        return torch.where(known, rates, ratio)[:width].expand(ctx.num_rows, -1)

    def observe(self, ctx: StepContext, verdict: Verdict, state: PositionCounts) -> PositionCounts:
        """The ring with this step's counts in place of the oldest."""
        seen = observed(verdict, state.reached.shape[1])
        # a sum over no rows is 0, and so is an idle step's: neither is an observation, and whether the
        # ring moves on must be known here
        reached = seen.reached.sum(dim=0, dtype=torch.float64)
        if not bool(reached.any()):
            return state
        place = torch.tensor([state.num_steps % self.window], device=reached.device)
        accepted = seen.accepted.sum(dim=0, dtype=torch.float64)
        return PositionCounts(
            accepted=state.accepted.to(reached.device).index_copy(0, place, accepted[None]),
            reached=state.reached.to(reached.device).index_copy(0, place, reached[None]),
            num_steps=state.num_steps + 1,
        )
