"""Stop where the draft distribution is too flat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.stopping import num_leading, stop_after
from dspark.types import LosslessClass, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Draft, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Svip(Policy):
    """Draft on while ``√(c·H(q_k)) <= threshold``, H in nats; the token that fails is verified.

    SVIP (arXiv 2411.18462; defaults of https://github.com/Geralt-Targaryen/SVIP): the root bounds, up to
    the factor c, how far draft and target can be apart at this position. Class B: the position behind
    it is not drafted, the position itself is.

    Args:
        depth: draft at most this far.
        c: the factor, > 0.
        threshold: h, >= 0; larger drafts further.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 40
    c: float = 0.15
    threshold: float = 0.3

    def __post_init__(self) -> None:
        require_depth(self.depth)
        if not 0 < self.c < math.inf:
            raise ValueError(f"c must be a number > 0, got {self.c}")
        if not 0 <= self.threshold < math.inf:
            raise ValueError(f"threshold must be a number >= 0, got {self.threshold}")

    @property
    def lossless_class(self) -> LosslessClass:
        """B."""
        return LosslessClass.STOP_AFTER

    @property
    def max_depth(self) -> int:
        """``depth``, reached while the drafter is sure."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The entropy."""
        return frozenset({Signal.ENTROPY})

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def proceed(self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: State) -> Tensor:
        """Bool [B]: no position up to k is too flat."""
        return num_leading(self._sure(signals)) == k

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """Int [B]: the draft up to its first position that is too flat, with it."""
        return stop_after(self._sure(draft.signals), draft.lengths)

    def _sure(self, signals: Mapping[Signal, Tensor]) -> Tensor:
        """Bool [B, K]: the entropy is low enough; NaN is not."""
        # rounding can leave the entropy of a point mass a little below 0
        return (self.c * signals[Signal.ENTROPY].double().clamp(min=0)).sqrt() <= self.threshold
