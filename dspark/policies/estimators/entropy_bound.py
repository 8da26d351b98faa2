"""A lower bound on acceptance from the entropy of the draft distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.policies.estimators.base import Estimator, read_signal
from dspark.types import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.policies.base import State
    from dspark.types import StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyBound(Estimator):
    """``max(0, 1 − √(γ·H(q_k)))``, H in nats (AdaEDL, arXiv 2410.18351).

    Acceptance is 1 − TV(p, q), and Pinsker's inequality bounds TV by √(KL/2). The target is not
    known when the token is drafted, so that a share γ of the draft's own entropy stands in for KL/2;
    SVIP (arXiv 2411.18462) derives the same form with 0.15 for γ. Below 0 the bound says nothing.

    Raises:
        ValueError: ``gamma`` is not a positive number.
    """

    gamma: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.gamma < math.inf:
            raise ValueError(f"gamma must be a number > 0, got {self.gamma}")

    @property
    def needs(self) -> frozenset[Signal]:
        """The entropy."""
        return frozenset({Signal.ENTROPY})

    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: State
    ) -> Tensor:
        """Float64 [B, width], the bound; 0 where nothing was drafted."""
        entropy = read_signal(signals, Signal.ENTROPY, width, "entropy_bound")
        # rounding can leave the entropy of a point mass a little below 0
        return (1 - (self.gamma * entropy.clamp(min=0)).sqrt()).clamp(min=0).nan_to_num(nan=0.0)
