"""A cost model that is linear in cached tokens, pass tokens and rows, as serving papers fit it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

from dspark.cost.base import CostModel, StepTime

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost(CostModel):
    """Target seconds ``fixed + kv * context + token * tokens + row * rows``; a like form drafts.

    The form of SmartSpec (arXiv 2406.14066) and of "Speculative Decoding: Performance or
    Illusion?" (arXiv 2601.11580): good for dense models below the compute ridge. A step that
    drafts nothing pays no ``draft_*`` and no ``speculating_*`` term.

    Range of validity: coefficients are kept as they were fitted, and a regression may give a
    negative one (``target_row_s``, usually, since rows, tokens and cached tokens grow together).
    Such a model must not be used at contexts much shorter than those it was fitted on: below
    ``min_context_tokens`` cached tokens a row, one more row makes the step shorter. Nothing is
    clamped; a query whose target pass would take no time, or less, is refused.

    Raises:
        ValueError: a coefficient is not finite, or all of the target's are zero.
    """

    target_fixed_s: float
    target_kv_s: float  # a cached token
    target_token_s: float  # a token of the pass
    target_row_s: float = 0.0  # a row
    target_speculating_s: float = 0.0  # a step that drafts
    draft_fixed_s: float = 0.0
    draft_kv_s: float = 0.0  # a cached token
    draft_row_s: float = 0.0  # a row
    draft_depth_s: float = 0.0  # a token drafted after another, whatever the number of rows
    draft_target_share: float = 0.0  # of the target's seconds
    overhead_s: float = 0.0  # every step
    speculating_overhead_share: float = 0.0  # of the target's seconds, in a step that drafts

    def __post_init__(self) -> None:
        for spec in fields(self):
            if not math.isfinite(getattr(self, spec.name)):
                raise ValueError(f"{spec.name} must be finite, got {getattr(self, spec.name)!r}")
        if not any((self.target_fixed_s, self.target_kv_s, self.target_token_s, self.target_row_s)):
            raise ValueError("all target_* coefficients are zero, so a pass would take no time: set one")

    @property
    def min_context_tokens(self) -> float:
        """Cached tokens a row from which a further plain row no longer shortens the step."""
        row_s = self.target_row_s + self.target_token_s
        if row_s >= 0:
            return 0.0
        return -row_s / self.target_kv_s if self.target_kv_s > 0 else math.inf

    def step_time_s(
        self, *, decode_rows: Tensor, tokens: Tensor, context_tokens: Tensor, draft_tokens: Tensor
    ) -> StepTime:
        """Seconds of steps with these sizes, in float64; all arguments broadcast.

        Args:
            decode_rows: rows of the step.
            tokens: N, tokens in the target's pass.
            context_tokens: cached tokens over all rows.
            draft_tokens: tokens drafted one after another for a row; 0 is a plain step.

        Raises:
            ValueError: a query lies where the fit gives the target no time, or less.
        """
        rows, new, cached, depth = (
            size.to(torch.float64)
            for size in torch.broadcast_tensors(decode_rows, tokens, context_tokens, draft_tokens)
        )
        drafts = depth > 0
        target_s = (
            self.target_fixed_s
            + self.target_kv_s * cached
            + self.target_token_s * new
            + self.target_row_s * rows
            + self.target_speculating_s * drafts
        )
        self._refuse_non_positive(target_s, rows, cached)
        draft_s = drafts * (
            self.draft_fixed_s
            + self.draft_kv_s * cached
            + self.draft_row_s * rows
            + self.draft_depth_s * depth
            + self.draft_target_share * target_s
        )
        overhead_s = self.overhead_s + drafts * self.speculating_overhead_share * target_s
        return StepTime(draft_s=draft_s, target_s=target_s, overhead_s=overhead_s)

    def _refuse_non_positive(self, target_s: Tensor, rows: Tensor, cached: Tensor) -> None:
        """Raises for the first query outside the fit: a time of 0 or less would win any arg-max."""
        outside = target_s <= 0
        if not outside.any():
            return
        at = tuple(outside.nonzero()[0])
        raise ValueError(
            f"the linear cost model gives {target_s[at].item():.3g} s for a pass of "
            f"{rows[at].item():.0f} rows over {cached[at].item():.0f} cached tokens, outside its fit "
            f"(from {self.min_context_tokens:.0f} cached tokens a row): use another cost model"
        )
