"""Stop where the entropy bound on acceptance falls below a threshold that adapts to each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.adaptive_threshold import ThresholdRule, Thresholds
from dspark.policies.base import Policy, require_depth
from dspark.policies.estimators.entropy_bound import EntropyBound
from dspark.policies.stopping import num_leading, stop_after
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Draft, Signal, StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaedl(Policy):
    """Draft on while ``1 − √(γ·H(q_k))`` is not below the row's threshold λ; the token is kept.

    AdaEDL (arXiv 2410.18351): the bound is the ``entropy_bound`` estimator, λ moves by Draft & Verify's
    rule (``ThresholdRule``). Class B: the token that fails is verified. Rows stop by themselves; a
    batched re-implementation (in DSDE, arXiv 2509.01083) stops all rows with the first. State: a
    threshold and a matching rate for each slot.

    Args:
        depth: draft at most this far.
        gamma: γ, share of the entropy in the bound.
        threshold: λ of a new request.
        target: α, acceptance rate to keep.
        increment: ε, how far λ would move at once.
        match_decay: β1, weight of the past in the acceptance rate.
        threshold_decay: β2, weight of the present λ.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 8
    gamma: float = 0.2
    threshold: float = 0.5
    target: float = 0.9
    increment: float = 0.01
    match_decay: float = 0.5
    threshold_decay: float = 0.9

    def __post_init__(self) -> None:
        require_depth(self.depth)
        self._bound()
        self._rule()

    @property
    def lossless_class(self) -> LosslessClass:
        """B."""
        return LosslessClass.STOP_AFTER

    @property
    def max_depth(self) -> int:
        """``depth``, reached while no bound is below λ."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The entropy."""
        return self._bound().needs

    def init(self, num_slots: int) -> Thresholds:
        """``threshold`` for every slot."""
        return self._rule().init(num_slots)

    def plan(self, ctx: StepContext, state: Thresholds) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def proceed(
        self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: Thresholds
    ) -> Tensor:
        """Bool [B]: no bound up to k is below the row's λ."""
        return num_leading(self._sure(ctx, signals, k, state)) == k

    def trim(self, ctx: StepContext, draft: Draft, state: Thresholds) -> Tensor:
        """Int [B]: the draft up to its first bound below the row's λ, with it."""
        return stop_after(self._sure(ctx, draft.signals, draft.tokens.shape[1], state), draft.lengths)

    def observe(self, ctx: StepContext, verdict: Verdict, state: Thresholds) -> Thresholds:
        """The thresholds after the step."""
        return self._rule().updated(ctx, verdict, state, self.depth)

    def _sure(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor], width: int, state: Thresholds
    ) -> Tensor:
        """Bool [B, width]: the bound is not below the row's λ."""
        bound = self._bound().conditional(ctx, signals, width, None)
        return bound >= self._rule().of_rows(ctx, state)[:, None]

    def _bound(self) -> EntropyBound:
        return EntropyBound(gamma=self.gamma)

    def _rule(self) -> ThresholdRule:
        return ThresholdRule(
            initial=self.threshold,
            target=self.target,
            increment=self.increment,
            match_decay=self.match_decay,
            threshold_decay=self.threshold_decay,
        )
