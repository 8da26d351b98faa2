"""The simplest cost model: a pass costs the same whatever it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.cost.base import CostModel, StepTime

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantCost(CostModel):
    """Every target pass takes ``target_s``, every draft token ``draft_s_per_token``.

    This is the model of Leviathan et al. (arXiv 2211.17192, §3.3), whose c is
    ``draft_s_per_token / target_s``. It holds while the target is memory bound, so at small
    batches only: more tokens or more rows never cost more here.

    Raises:
        ValueError: ``target_s`` is not positive, or another field is negative.
    """

    draft_s_per_token: float
    target_s: float
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.target_s > 0:
            raise ValueError(f"target_s must be > 0, got {self.target_s!r}")
        for name in ("draft_s_per_token", "overhead_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)!r}")

    def step_time_s(
        self, *, decode_rows: Tensor, tokens: Tensor, context_tokens: Tensor, draft_tokens: Tensor
    ) -> StepTime:
        """Seconds of steps with these sizes, in float64; only ``draft_tokens`` matters."""
        *_, depth = torch.broadcast_tensors(decode_rows, tokens, context_tokens, draft_tokens)
        draft_s = depth.to(torch.float64) * self.draft_s_per_token
        return StepTime(
            draft_s=draft_s,
            target_s=torch.full_like(draft_s, self.target_s),
            overhead_s=torch.full_like(draft_s, self.overhead_s),
        )
