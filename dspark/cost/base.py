"""The contract of a cost model: how many seconds a step takes on some machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Modelled seconds of one step; tensors broadcast with the query."""

    draft_s: Tensor
    target_s: Tensor
    overhead_s: Tensor

    @property
    def total_s(self) -> Tensor:
        """Seconds of the whole step."""
        return self.draft_s + self.target_s + self.overhead_s


class CostModel(ABC):
    """Abstract; concrete models are frozen dataclasses."""

    @abstractmethod
    def step_time_s(
        self, *, decode_rows: Tensor, tokens: Tensor, context_tokens: Tensor, draft_tokens: Tensor
    ) -> StepTime:
        """Seconds of steps with these sizes; all arguments broadcast.

        Args:
            decode_rows: rows of the step.
            tokens: N, tokens in the target's pass.
            context_tokens: cached tokens over all rows.
            draft_tokens: tokens drafted one after another for a row (the depth of the step).
        """
