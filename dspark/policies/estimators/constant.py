"""One acceptance rate for every row and position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.estimators.base import Estimator, require_probability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.policies.base import State
    from dspark.types import Signal, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Estimator):
    """``alpha`` everywhere: independent, identical acceptance (Leviathan et al., arXiv 2211.17192, §3.1).

    Raises:
        ValueError: ``alpha`` is outside [0, 1].
    """

    alpha: float = 0.7

    def __post_init__(self) -> None:
        require_probability(self.alpha, "alpha")

    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: State
    ) -> Tensor:
        """Float64 [B, width], ``alpha`` everywhere."""
        return torch.full((ctx.num_rows, width), self.alpha, dtype=torch.float64, device=ctx.slots.device)
