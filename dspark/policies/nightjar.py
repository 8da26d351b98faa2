"""A bandit over depths with batch size as context and a price on waking the drafter."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dspark.policies.arms.base import replaced
from dspark.policies.base import Policy, State, require_depth
from dspark.policies.chance import chances
from dspark.policies.measured import emitted_tokens, is_timed
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is known about one range of batch sizes, and where its schedule stands."""

    tokens: tuple[float, ...]  # emitted a row, one sum an arm; the arm is the depth
    seconds: tuple[float, ...]
    block: int = 1  # from 1
    bin: int = 0  # of the block, from 1; 0 before the first
    steps_left: int = 0  # of the bin
    arm: int = 0  # of the bin


@dataclass(frozen=True, slots=True, kw_only=True)
class NightjarState:
    """The contexts by batch size, and the depth of the last step."""

    contexts: tuple[Context, ...]
    last_depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nightjar(Policy):
    """Nightjar's planner (Li et al., arXiv 2512.22420): least seconds a token, switching included.

    Class A: measured time and random numbers are known before drafting. Batch sizes fall into
    contexts of ``bin_width`` sizes. The steps of a context form blocks of 1, 2, 4, ... steps, each
    divided into bins of sqrt(block length) steps, rounded down. A bin has one depth, chosen at its
    start for all rows: with probability 1 / (its number in the block) one drawn uniformly from 0 to
    ``depth``, otherwise

        arg min over depths d of  1 / g(d)  +  [last depth was 0 and d > 0] · switch_cost_s / d

    with g the tokens a row per second at this depth so far (sums over sums), the smaller d of equals.
    Depths not tried yet come first. ``switch_cost_s`` is what a drafter's cache costs to catch up
    with tokens it did not see; 0.018 to 0.102 s were published, by length and batch size.

    Way back from 0: the first bin of each block always explores.

    The published code has probability 1 / sqrt(number), a prior on the arms, and draws at every step
    of an exploring bin. Moving an idle drafter out of device memory is the engine's business and not
    part of this policy. A step that took no time teaches nothing.

    Args:
        depth: the largest depth.
        bin_width: batch sizes of a context.
        switch_cost_s: seconds.
        seed: of exploration.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 4
    bin_width: int = 2
    switch_cost_s: float = 0.018
    seed: int = 0

    def __post_init__(self) -> None:
        require_depth(self.depth)
        if self.bin_width < 1:
            raise ValueError(f"bin_width must be >= 1 batch size, got {self.bin_width}")
        if not 0 <= self.switch_cost_s < float("inf"):
            raise ValueError(f"switch_cost_s must be >= 0 seconds, got {self.switch_cost_s}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """``depth``."""
        return self.depth

    def init(self, num_slots: int) -> State:
        """A context for every ``bin_width`` batch sizes up to ``num_slots``, nothing tried."""
        nothing = (0.0,) * (self.depth + 1)
        num_contexts = -(-num_slots // self.bin_width)
        return NightjarState(
            contexts=(Context(tokens=nothing, seconds=nothing),) * num_contexts, last_depth=0
        )

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], the depth of the context's bin everywhere."""
        return torch.full_like(ctx.slots, self._current(ctx, state).arm)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The state with the step counted, and its tokens and seconds added to its depth."""
        if not is_timed(verdict):
            return state
        now = self._current(ctx, state)
        tokens = now.tokens[now.arm] + emitted_tokens(verdict) / ctx.num_rows
        seconds = now.seconds[now.arm] + verdict.step_time_s
        now = replace(
            now,
            tokens=replaced(now.tokens, now.arm, tokens),
            seconds=replaced(now.seconds, now.arm, seconds),
            steps_left=now.steps_left - 1,
        )
        contexts = replaced(state.contexts, self._index(ctx.num_rows), now)
        return NightjarState(contexts=contexts, last_depth=now.arm)

    def _index(self, num_rows: int) -> int:
        """The context of a batch size; sizes from 1."""
        return max(0, num_rows - 1) // self.bin_width

    def _current(self, ctx: StepContext, state: NightjarState) -> Context:
        """The context with the bin that the step belongs to; the same whenever it is asked for."""
        context = state.contexts[self._index(ctx.num_rows)]
        if context.steps_left > 0:
            return context
        block, number = context.block, context.bin + 1
        if number > num_bins(block):
            block, number = block + 1, 1
        explores, which = chances(self.seed, ctx.step, 2)
        if explores * number < 1:
            arm = int(which * (self.depth + 1))
        else:
            arm = self._best(context, state.last_depth)
        return replace(context, block=block, bin=number, steps_left=bin_length(block), arm=arm)

    def _best(self, context: Context, last_depth: int) -> int:
        """The depth of the least expected seconds a token; those without a time first."""
        switch_s = self.switch_cost_s if last_depth == 0 else 0.0
        losses = [
            seconds / tokens + (switch_s / arm if arm else 0.0) if tokens else -math.inf
            for arm, (tokens, seconds) in enumerate(zip(context.tokens, context.seconds, strict=True))
        ]
        return losses.index(min(losses))


def bin_length(block: int) -> int:
    """Steps of a bin of block 1, 2, ..., whose length is ``2 ** (block - 1)`` steps."""
    return math.isqrt(2 ** (block - 1))


def num_bins(block: int) -> int:
    """Bins of a block: as many as cover its length."""
    return -(-(2 ** (block - 1)) // bin_length(block))
