"""A window of draft tokens that follows the average accepted length and opens after full acceptance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.row_state import read_rows, write_rows
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindows:
    """One entry a slot."""

    depth: Tensor  # int [num_slots]
    average: Tensor  # float64 [num_slots], accepted tokens a draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Gammatune(Policy):
    """GammaTune (Gautam, Shrestha and Reddy, arXiv 2504.00030) for every row by itself.

    Class A: a row's depth follows from its earlier steps. After each draft the row's average moves
    by ``weight`` towards the accepted length. Then

    * a draft accepted whole opens the window: the next one is ``expand`` tokens deeper;
    * after any other the depth is the average, rounded up, and at least ``min_depth``.

    Published: the two rules, tried with first depths from 1 to 24. The constants are not among what
    could be recovered of the paper, so these are set by us: the weight of the average, the size of
    the expansion, the rounding and the bounds. GammaTune+, which also stops on the drafter's own
    doubts, is not this policy.

    A draft that was accepted whole but was shorter than planned, because a budget or the drafter
    ended it, says only "at least that many": the row keeps its depth and its average. The depth is
    never 0.

    Args:
        start: depth of a row's first draft.
        depth: the largest depth.
        min_depth: the smallest, at least 1.
        weight: of the last draft in the average, in (0, 1].
        expand: tokens.

    Raises:
        ValueError: a field is outside its range.
    """

    start: int = 4
    depth: int = 24
    min_depth: int = 1
    weight: float = 0.5
    expand: int = 2

    def __post_init__(self) -> None:
        for name in ("start", "depth", "min_depth"):
            require_depth(getattr(self, name), name)
        if not 1 <= self.min_depth <= self.start <= self.depth:
            raise ValueError(
                "depths must be 1 <= min_depth <= start <= depth, got "
                f"min_depth={self.min_depth}, start={self.start}, depth={self.depth}"
            )
        if not 0 < self.weight <= 1:
            raise ValueError(f"weight must be in (0, 1], got {self.weight}")
        if self.expand < 1:
            raise ValueError(f"expand must be >= 1 token, got {self.expand}")

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """``depth``."""
        return self.depth

    def init(self, num_slots: int) -> State:
        """``start`` for every slot, as window and as average."""
        depth = torch.full((num_slots,), self.start)
        return RowWindows(depth=depth, average=depth.double())

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], each row's present window."""
        return read_rows(state.depth, ctx, self.start)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The rows' windows and averages after the step."""
        depth = self.plan(ctx, state)
        average = read_rows(state.average, ctx, self.start)
        accepted, verified = verdict.accepted, verdict.verify_lengths
        rejected = accepted < verified
        whole = ~rejected & (verified >= depth)  # a depth is at least 1, so something was verified
        average = torch.where(rejected | whole, average + self.weight * (accepted - average), average)
        depth = torch.where(rejected, average.ceil().long(), depth)
        depth = torch.where(whole, depth + self.expand, depth).clamp(self.min_depth, self.depth)
        return RowWindows(
            depth=write_rows(state.depth, ctx, depth), average=write_rows(state.average, ctx, average)
        )
