"""Test the depths, then set the one whose gain outweighs its cost most, or none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from dspark.policies.arms.base import replaced
from dspark.policies.base import Policy, State, require_depth
from dspark.policies.batch_buckets import bucket_of, require_starts
from dspark.policies.measured import emitted_tokens, is_timed
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Where a bucket of batch sizes stands; sums are those of the test under way, one a depth from 0."""

    tokens: tuple[float, ...]  # emitted a row
    seconds: tuple[float, ...]
    num_steps: int = 0  # of the phase so far
    set_depth: int | None = None  # of the set phase; None while testing
    num_refusals: int = 0  # tests in a row that found no depth worth its cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade(Policy):
    """Cascade (Saxena et al., arXiv 2506.20675): speculate at the depth of the largest utility, if above 1.

    Class A: time and acceptance are measured before. The utility of a depth is its gain over its
    cost: tokens a row and step, over the seconds of a step relative to those of a plain step. A test
    phase runs plain decoding and every depth up to ``depth`` for ``num_trials`` steps each; then a
    set phase of ``set_steps`` runs the depth of the largest utility, or plain decoding where none
    has a utility above 1, and a new test follows. After such a refusal, set phases double up to
    ``max_set_steps``, so that testing what does not pay costs less and less.

    Way back from 0: every set phase ends, and the test that follows drafts.

    The paper decides for each request, served one at a time. The seconds of a batched step belong
    to all of its rows, so here one depth is decided for all rows, and on its own for each bucket of
    batch sizes, as times at different sizes do not compare. 5 trials a depth up to 5 are those of a
    public port; lengths of set phases are ours. A step that took no time counts for nothing.

    Args:
        depth: the largest depth.
        num_trials: steps of each depth in a test phase.
        set_steps: steps of a set phase.
        max_set_steps: steps of the longest one.
        batch_starts: smallest batch size of each bucket, the first 1.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 5
    num_trials: int = 5
    set_steps: int = 128
    max_set_steps: int = 2048
    batch_starts: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32, 64, 128, 256])

    def __post_init__(self) -> None:
        require_depth(self.depth)
        require_starts(self.batch_starts, "batch_starts")
        checks = (
            (self.depth >= 1, "depth", ">= 1"),
            (self.num_trials >= 1, "num_trials", ">= 1"),
            (self.set_steps >= 1, "set_steps", ">= 1"),
            (self.max_set_steps >= self.set_steps, "max_set_steps", f">= set_steps={self.set_steps}"),
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
        """A tuple of ``Phase``, one a bucket, all about to test."""
        return (self._test(num_refusals=0),) * len(self.batch_starts)

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], the depth that the bucket tests or has set, everywhere."""
        return torch.full_like(ctx.slots, self._depth(state[bucket_of(self.batch_starts, ctx.num_rows)]))

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The phases after the step; only the bucket of its batch changes."""
        if not is_timed(verdict):
            return state
        bucket = bucket_of(self.batch_starts, ctx.num_rows)
        tokens_a_row = emitted_tokens(verdict) / ctx.num_rows
        return replaced(state, bucket, self._after(state[bucket], tokens_a_row, verdict.step_time_s))

    def utilities(self, phase: Phase) -> list[float]:
        """Utility of each depth from 0, whose own is 1, after a test phase."""
        plain_s = phase.seconds[0] / self.num_trials
        return [
            (tokens / self.num_trials) / (seconds / self.num_trials / plain_s)
            for tokens, seconds in zip(phase.tokens, phase.seconds, strict=True)
        ]

    def _depth(self, phase: Phase) -> int:
        if phase.set_depth is not None:
            return phase.set_depth
        return phase.num_steps // self.num_trials  # plain decoding first, then one depth after another

    def _after(self, phase: Phase, tokens: float, seconds: float) -> Phase:
        """The phase after a step that emitted ``tokens`` a row."""
        if phase.set_depth is not None:
            length = min(self.max_set_steps, self.set_steps << max(0, phase.num_refusals - 1))
            if phase.num_steps + 1 < length:
                return replace(phase, num_steps=phase.num_steps + 1)
            return self._test(phase.num_refusals)
        depth = self._depth(phase)
        phase = replace(
            phase,
            tokens=replaced(phase.tokens, depth, phase.tokens[depth] + tokens),
            seconds=replaced(phase.seconds, depth, phase.seconds[depth] + seconds),
            num_steps=phase.num_steps + 1,
        )
        return self._decided(phase) if phase.num_steps == self.num_trials * (self.depth + 1) else phase

    def _decided(self, phase: Phase) -> Phase:
        """The set phase that a finished test leads to."""
        utilities = self.utilities(phase)
        best = max(range(1, self.depth + 1), key=utilities.__getitem__)
        if utilities[best] > 1:
            return replace(phase, num_steps=0, set_depth=best, num_refusals=0)
        return replace(phase, num_steps=0, set_depth=0, num_refusals=phase.num_refusals + 1)

    def _test(self, num_refusals: int) -> Phase:
        """A test phase that has not begun."""
        nothing = (0.0,) * (self.depth + 1)
        return Phase(tokens=nothing, seconds=nothing, num_refusals=num_refusals)
