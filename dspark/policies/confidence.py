"""Per-row depth: speculate while the drafter is sure of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.types import Knowledge, LosslessClass, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Draft, StepContext

PROBABILITIES = (Signal.TOKEN_PROBABILITY, Signal.TOP1_PROBABILITY, Signal.CONFIDENCE)
"""Signals that estimate a probability, so that a threshold in [0, 1] and a product make sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence(Policy):
    """End a row's draft at the first position whose ``signal`` is below ``threshold``.

    With ``survival`` the signal is multiplied over the prefix first, so that the threshold bounds
    the estimated probability that the whole draft so far is accepted. What becomes of the position
    that fails is the difference between two exact rules:

    * ``stop="after"`` verifies it and drafts nothing behind it. Class B, with every signal:
      whether position k is verified depends on positions before k only. This is the rule of
      transformers' ``assistant_confidence_threshold``, with its default of 0.4 on the drawn
      token's probability, there at most 20 tokens deep.
    * ``stop="before"`` drops it. Class C, if the signal precedes the drawn token (vLLM's
      ``confidence_stop``); by the drawn token's own probability it is class D, which biases the
      output of rejection sampling.

    Drafters that draw one token after another are stopped on the way (``proceed``) and spare the
    rest; a block is cut when it is there (``trim``). Both give the same verify lengths.

    Args:
        depth: draft at most this far.
        threshold: in [0, 1]; 0 never stops.
        signal: a ``Signal`` that is a probability, by value.
        survival: compare the product over the prefix.
        stop: "after" or "before" the first position below the threshold.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int
    threshold: float = 0.4
    signal: str = Signal.TOKEN_PROBABILITY.value
    survival: bool = False
    stop: str = "after"

    def __post_init__(self) -> None:
        require_depth(self.depth)
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be in [0, 1], got {self.threshold}")
        if self.signal not in PROBABILITIES:
            choices = ", ".join(PROBABILITIES)
            raise ValueError(f"signal must be a probability ({choices}), got {str(self.signal)!r}")
        if self.stop not in ("after", "before"):
            raise ValueError(f"stop must be 'after' or 'before', got {self.stop!r}")

    @property
    def lossless_class(self) -> LosslessClass:
        """B for ``after``; for ``before`` C, or D where the signal knows the token it drops."""
        if self.stop == "after":
            return LosslessClass.STOP_AFTER
        if Signal(self.signal).knowledge is Knowledge.SAMPLED_TOKEN:
            return LosslessClass.SAMPLED
        return LosslessClass.PRE_TOKEN

    @property
    def max_depth(self) -> int:
        """``depth``, reached while no position is below the threshold."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The one signal that is compared."""
        return frozenset({Signal(self.signal)})

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def proceed(self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: State) -> Tensor:
        """Bool [B]: no position up to k is below the threshold."""
        return self._num_sure(signals) == k

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """Int [B]: the draft up to its first position below the threshold, with it or without."""
        kept = self._num_sure(draft.signals)
        return torch.minimum(draft.lengths, kept + 1 if self.stop == "after" else kept)

    def _num_sure(self, signals: Mapping[Signal, Tensor]) -> Tensor:
        """Int [B]: positions before the first one below the threshold; NaN is below."""
        score = signals[Signal(self.signal)]
        if self.survival:
            score = score.cumprod(dim=1)
        return (score >= self.threshold).cumprod(dim=1).sum(dim=1)
