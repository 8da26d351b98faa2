"""SGLang's throughput-aware controller: the depth with the most expected tokens a second."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import torch

from dspark.policies.base import Policy, require_depth
from dspark.policies.estimators import PositionWindow, survival
from dspark.policies.search import cached_tokens
from dspark.policies.search.curve import cost_of
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.policies.estimators.position_window import PositionCounts
    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputState:
    """The window of acceptance, and the depth in force."""

    window: PositionCounts
    depth: int
    num_waited: int  # steps since the last decision
    num_seen: int  # steps that verified a draft since the depth rose
    num_idle: int  # steps in a row without a draft


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangThroughput(Policy):
    """One depth S for all rows, by ``score(S) = (1 + p_1 + ... + p_S) / seconds of a step of depth S``.

    SGLang's throughput-aware strategy (https://github.com/sgl-project/sglang,
    ``python/sglang/srt/speculative``): p_k, the share of rows that accept k tokens, is taken over the
    last ``window`` steps, shared by all batch sizes, and continued geometrically past the positions
    verified in them. Every ``interval`` steps the candidates are scored for the batch at hand; another
    depth must beat the present one by ``hysteresis``. After a rise nothing is decided until ``window``
    steps have verified drafts, so that the new positions are known. Class A: all of it is past.

    Unlike there, 0 is a candidate like the others and costs what the model says of plain decoding; the
    steps' counts are summed, where SGLang averages their rates; and what is known of positions deeper
    than the present depth leaves with the window, not at once.

    Way back from depth 0: the window is kept, and after ``probe_every`` steps without a draft one step
    has the smallest positive depth.

    Args:
        depths: the candidates, ascending. The first step has the middle one.
        window: steps of acceptance to look back.
        interval: steps between two decisions.
        hysteresis: share by which another depth must score higher.
        probe_every: steps at depth 0 before a probe.

    Raises:
        ValueError: a field is outside its range.
    """

    needs_cost: ClassVar[bool] = True

    depths: list[int] = field(default_factory=lambda: [0, 1, 3, 5, 7])
    window: int = 20
    interval: int = 10
    hysteresis: float = 0.1
    probe_every: int = 25

    def __post_init__(self) -> None:
        listed = list(self.depths)
        for depth in listed:
            require_depth(depth, "each of depths")
        if not listed or any(deeper <= depth for depth, deeper in pairwise(listed)):
            raise ValueError(f"depths must ascend, one or more, got {listed}")
        checks = (
            (self.window >= 1, "window", ">= 1 steps"),
            (self.interval >= 1, "interval", ">= 1 steps"),
            (self.hysteresis >= 0, "hysteresis", ">= 0"),
            (self.probe_every >= 1, "probe_every", ">= 1 steps"),
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
        """The deepest candidate."""
        return self.depths[-1]

    def init(self, num_slots: int) -> ThroughputState:
        """An empty window and the middle candidate."""
        return ThroughputState(
            window=self._estimator().init(num_slots, self.max_depth),
            depth=self.depths[len(self.depths) // 2],
            num_waited=0,
            num_seen=0,
            num_idle=0,
        )

    def plan(self, ctx: StepContext, state: ThroughputState) -> Tensor:
        """Int [B], one depth everywhere."""
        return torch.full_like(ctx.slots, self._planned(ctx, state))

    def observe(self, ctx: StepContext, verdict: Verdict, state: ThroughputState) -> ThroughputState:
        """The window after the step, and the depth that holds until the next decision."""
        if ctx.num_rows == 0:
            return state
        planned, depth = self._planned(ctx, state), self._decided_depth(ctx, state)
        window = self._estimator().observe(ctx, verdict, state.window)
        num_seen = 0 if depth > state.depth else state.num_seen
        return ThroughputState(
            window=window,
            depth=depth,
            num_waited=1 if self._is_due(state) else state.num_waited + 1,
            num_seen=num_seen + window.num_steps - state.window.num_steps,
            num_idle=0 if planned else state.num_idle + 1,
        )

    def scores(self, ctx: StepContext, state: ThroughputState) -> Tensor:
        """Float64, one a candidate: expected tokens of a row per second."""
        depths = torch.tensor(self.depths, device=ctx.slots.device)
        conditional = self._estimator().conditional(ctx, None, self.max_depth, state.window)[:1]
        accepted = survival(conditional)[0].cumsum(dim=0)
        expected = torch.cat([accepted.new_zeros(1), accepted])[depths] + 1
        rows = torch.tensor(ctx.num_rows, device=depths.device)
        times = cost_of(ctx).step_time_s(
            decode_rows=rows,
            tokens=rows * (1 + depths),
            context_tokens=cached_tokens(ctx),
            draft_tokens=depths,
        )
        return expected / times.total_s

    def _estimator(self) -> PositionWindow:
        return PositionWindow(window=self.window)

    def _is_due(self, state: ThroughputState) -> bool:
        """Whether to decide: the interval is over, and positions that a rise added are known."""
        return state.num_waited >= self.interval and (state.depth == 0 or state.num_seen >= self.window)

    def _planned(self, ctx: StepContext, state: ThroughputState) -> int:
        """The depth of this step: what is decided, or the smallest positive candidate to probe."""
        depth = self._decided_depth(ctx, state)
        if depth == 0 and state.num_idle >= self.probe_every:
            return next((candidate for candidate in self.depths if candidate > 0), 0)
        return depth

    def _decided_depth(self, ctx: StepContext, state: ThroughputState) -> int:
        """The depth in force, or a new one if a decision is due."""
        if ctx.num_rows == 0 or not self._is_due(state):
            return state.depth
        scores = self.scores(ctx, state)
        best = scores.argmax()
        gains = scores[best] > (1 + self.hysteresis) * scores[self.depths.index(state.depth)]
        # leaves the device once in `interval` steps
        return self.depths[int(best)] if bool(gains) else state.depth
