"""Full depth always, and a state that tells what the last step showed: for measuring drafters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.types import LosslessClass, Signal, StepContext, Verdict

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStep:
    """What the decode rows of a step were, and what was decided about them."""

    ctx: StepContext
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder(Policy):
    """Draft ``depth`` tokens, verify them all, and keep the step; class A.

    No signal cuts a draft short, so that what became of a position is known wherever its prefix was
    accepted. The state is the ``LastStep``, or None before the first; it holds the drafter's signals
    but not its q, which would keep B · K · V numbers alive.

    Args:
        depth: the depth of every draft.
        signals: what the drafter shall tell of each position.

    Raises:
        ValueError: ``depth`` is negative or not a whole number.
    """

    depth: int
    signals: frozenset[Signal]

    def __post_init__(self) -> None:
        require_depth(self.depth)

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """``depth``."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """``signals``: they decide nothing, and are there to be kept."""
        return self.signals

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> LastStep:
        """The step, instead of the one before."""
        draft = None if verdict.draft is None else replace(verdict.draft, q=None)
        return LastStep(ctx=ctx, verdict=replace(verdict, draft=draft))
