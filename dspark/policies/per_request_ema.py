"""Each row's depth follows the average of its own accepted lengths."""

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

ADDITIVE, MULTIPLICATIVE = "additive", "multiplicative"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAverages:
    """One entry a slot."""

    depth: Tensor  # int [num_slots]
    average: Tensor  # float64 [num_slots], accepted tokens a draft
    idle_steps: Tensor  # int [num_slots], steps at depth 0 in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class PerRequestEma(Policy):
    """Deeper where most of a row's drafts is accepted on average, shallower where little is.

    Class A: a row's depth follows from its own earlier steps, and from no other row's. After each
    draft the row's average moves by ``weight`` towards the accepted length. Then the row's depth d

    * increases, if the average >= ``grow`` · d: by ``step`` (additive) or ``factor`` times (multiplicative);
    * decreases, if the average <= ``shrink`` · d: by ``step`` or to 1/``factor``.

    The default, additive up and multiplicative down, is the rule that keeps network senders stable
    (Chiu and Jain, Computer Networks and ISDN Systems 17, 1989); an average of acceptance steers depth
    in https://github.com/vllm-project/vllm/pull/28693. The numbers are ours.

    A draft that was accepted whole but was shorter than d, because a budget or the drafter ended it,
    says only "at least that many" and is not averaged.

    Way back from 0, which only ``min_depth = 0`` reaches: after ``probe_every`` steps at 0 the row
    drafts 1 token, and stays at 1 if it is accepted.

    Args:
        start: depth of a row's first draft.
        min_depth: the smallest depth.
        depth: the largest depth.
        weight: of the last draft in the average, in (0, 1].
        grow: share of d, in (0, 1].
        shrink: share of d, in [0, grow).
        increase: "additive" or "multiplicative".
        decrease: "additive" or "multiplicative".
        step: tokens of an additive move.
        factor: of a multiplicative move; upwards at least one token, downwards rounded down.
        probe_every: steps.

    Raises:
        ValueError: a field is outside its range.
    """

    start: int = 4
    min_depth: int = 1
    depth: int = 8
    weight: float = 0.3
    grow: float = 0.7
    shrink: float = 0.4
    increase: str = ADDITIVE
    decrease: str = MULTIPLICATIVE
    step: int = 1
    factor: float = 2.0
    probe_every: int = 32

    def __post_init__(self) -> None:
        for name in ("start", "min_depth", "depth"):
            require_depth(getattr(self, name), name)
        moves = (ADDITIVE, MULTIPLICATIVE)
        checks = (
            (self.depth >= 1, "depth", ">= 1"),
            (self.min_depth <= self.depth, "min_depth", f"<= depth={self.depth}"),
            (
                max(self.min_depth, 1) <= self.start <= self.depth,
                "start",
                f"in [max(min_depth, 1), depth] = [{max(self.min_depth, 1)}, {self.depth}]",
            ),
            (0 < self.weight <= 1, "weight", "in (0, 1]"),
            (0 < self.grow <= 1, "grow", "in (0, 1]"),
            (0 <= self.shrink < self.grow, "shrink", f"in [0, grow={self.grow})"),
            (self.increase in moves, "increase", f"{ADDITIVE} or {MULTIPLICATIVE}"),
            (self.decrease in moves, "decrease", f"{ADDITIVE} or {MULTIPLICATIVE}"),
            (self.step >= 1, "step", ">= 1 token"),
            (1 < self.factor < float("inf"), "factor", "> 1"),
            (self.probe_every >= 1, "probe_every", ">= 1 step"),
        )
        for holds, name, rule in checks:
            if not holds:
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """``depth``."""
        return self.depth

    def init(self, num_slots: int) -> State:
        """Every slot as a new row finds it."""
        return RowAverages(
            depth=torch.full((num_slots,), self.start),
            average=torch.full((num_slots,), self._first_average, dtype=torch.float64),
            idle_steps=torch.zeros(num_slots, dtype=torch.int64),
        )

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], each row's present depth, or 1 where it probes."""
        depth = read_rows(state.depth, ctx, self.start)
        idle = read_rows(state.idle_steps, ctx, 0)
        return torch.where((depth == 0) & (idle >= self.probe_every), 1, depth)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The rows' entries after the step."""
        depth = read_rows(state.depth, ctx, self.start)
        average = read_rows(state.average, ctx, self._first_average)
        idle = read_rows(state.idle_steps, ctx, 0)
        planned = self.plan(ctx, state)
        accepted, verified = verdict.accepted, verdict.verify_lengths
        counts = (verified > 0) & ((accepted < verified) | (verified >= planned))
        probed = counts & (depth == 0)
        moved = average + self.weight * (accepted - average)
        moved = torch.where(probed, accepted.double(), moved)  # the average from before the stay is stale
        average = torch.where(counts, moved, average)
        depth = torch.where(probed, accepted, torch.where(counts, self._next(depth, average), depth))
        idle = torch.where(planned == 0, idle + 1, idle)
        idle = torch.where((depth > 0) | counts, 0, idle)  # a probe without a draft is tried again
        return RowAverages(
            depth=write_rows(state.depth, ctx, depth),
            average=write_rows(state.average, ctx, average),
            idle_steps=write_rows(state.idle_steps, ctx, idle),
        )

    @property
    def _first_average(self) -> float:
        """Average of a new row: in the middle between the thresholds."""
        return self.start * (self.grow + self.shrink) / 2

    def _next(self, depth: Tensor, average: Tensor) -> Tensor:
        """Int [B], the depth that follows where a draft was averaged."""
        if self.increase == ADDITIVE:
            deeper = depth + self.step
        else:
            deeper = torch.maximum((depth * self.factor).floor().long(), depth + 1)
        additive = self.decrease == ADDITIVE
        shallower = depth - self.step if additive else (depth / self.factor).floor().long()
        after = torch.where(average >= self.grow * depth, deeper, depth)
        after = torch.where(average <= self.shrink * depth, shallower, after)
        return after.clamp(self.min_depth, self.depth)
