"""A cost model that says what it is told, however jagged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark.cost.base import CostModel, StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCost(CostModel):
    """``seconds[n]`` for a pass of n tokens, whatever else is in it; n is rounded up."""

    seconds: list[float]

    def step_time_s(
        self, *, decode_rows: Tensor, tokens: Tensor, context_tokens: Tensor, draft_tokens: Tensor
    ) -> StepTime:
        """The listed seconds, all of them the target's."""
        _, new, _, _ = torch.broadcast_tensors(decode_rows, tokens, context_tokens, draft_tokens)
        target_s = torch.tensor(self.seconds, dtype=torch.float64)[new.double().ceil().long()]
        zeros = torch.zeros_like(target_s)
        return StepTime(draft_s=zeros, target_s=target_s, overhead_s=zeros)
