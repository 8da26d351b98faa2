"""A list of depths, one a step: for measuring what steps of each depth cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthSchedule(Policy):
    """Every row drafts to the next depth of the list once all slots decode, and to 0 before and after.

    Class A: the depths are known before the run. The state is the number of depths that are used up.

    Raises:
        ValueError: a depth is negative or not a whole number.
    """

    depths: tuple[int, ...]

    def __post_init__(self) -> None:
        for depth in self.depths:
            require_depth(depth)

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """The largest of the list."""
        return max(self.depths, default=0)

    def init(self, num_slots: int) -> int:
        """None used."""
        return 0

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], the same everywhere."""
        return torch.full_like(ctx.slots, self.depths[state] if self._is_counted(ctx, state) else 0)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> int:
        """One more used, where the step was full."""
        return state + self._is_counted(ctx, state)

    def _is_counted(self, ctx: StepContext, state: int) -> bool:
        return ctx.num_rows == ctx.num_slots and state < len(self.depths)
