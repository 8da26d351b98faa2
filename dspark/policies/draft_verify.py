"""Stop below a token probability that adapts to each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.adaptive_threshold import ThresholdRule, Thresholds
from dspark.policies.base import Policy, require_depth
from dspark.policies.stopping import num_leading, stop_after
from dspark.types import LosslessClass, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Draft, StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftVerify(Policy):
    """Draft on while the drawn token's probability is not below the row's threshold; the token is kept.

    Draft & Verify (Zhang et al., arXiv 2309.08168; defaults of
    https://github.com/dilab-zju/self-speculative-decoding), with its update of the threshold after every
    verification (``ThresholdRule``). Class B: the token that fails is verified. State: a threshold and a
    matching rate for each slot.

    Args:
        depth: draft at most this far.
        threshold: of a new request; the authors start greedy decoding at 0.8 and sampling at 0.5.
        target: acceptance rate to keep.
        increment: how far the threshold would move at once.
        match_decay: weight of the past in the acceptance rate.
        threshold_decay: weight of the present threshold.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 8
    threshold: float = 0.8
    target: float = 0.9
    increment: float = 0.01
    match_decay: float = 0.5
    threshold_decay: float = 0.9

    def __post_init__(self) -> None:
        require_depth(self.depth)
        self._rule()

    @property
    def lossless_class(self) -> LosslessClass:
        """B."""
        return LosslessClass.STOP_AFTER

    @property
    def max_depth(self) -> int:
        """``depth``, reached while no token is below the threshold."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The drawn token's probability."""
        return frozenset({Signal.TOKEN_PROBABILITY})

    def init(self, num_slots: int) -> Thresholds:
        """``threshold`` for every slot."""
        return self._rule().init(num_slots)

    def plan(self, ctx: StepContext, state: Thresholds) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def proceed(
        self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: Thresholds
    ) -> Tensor:
        """Bool [B]: no token up to k is below the row's threshold."""
        return num_leading(self._sure(ctx, signals, state)) == k

    def trim(self, ctx: StepContext, draft: Draft, state: Thresholds) -> Tensor:
        """Int [B]: the draft up to its first token below the row's threshold, with it."""
        return stop_after(self._sure(ctx, draft.signals, state), draft.lengths)

    def observe(self, ctx: StepContext, verdict: Verdict, state: Thresholds) -> Thresholds:
        """The thresholds after the step."""
        return self._rule().updated(ctx, verdict, state, self.depth)

    def _sure(self, ctx: StepContext, signals: Mapping[Signal, Tensor], state: Thresholds) -> Tensor:
        """Bool [B, K]: not below the row's threshold; NaN is below."""
        return signals[Signal.TOKEN_PROBABILITY].double() >= self._rule().of_rows(ctx, state)[:, None]

    def _rule(self) -> ThresholdRule:
        return ThresholdRule(
            initial=self.threshold,
            target=self.target,
            increment=self.increment,
            match_decay=self.match_decay,
            threshold_decay=self.threshold_decay,
        )
