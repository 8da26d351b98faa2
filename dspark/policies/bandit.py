"""Depth as the arm of a bandit that is paid in tokens per second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from dspark.policies.arms import ArmRule, EpsilonGreedy, Exp3, Ucb
from dspark.policies.arms.base import replaced
from dspark.policies.arms.ucb import OWN, TOTAL
from dspark.policies.base import Policy, State, require_depth
from dspark.policies.batch_buckets import bucket_of, require_starts
from dspark.policies.chance import chances
from dspark.policies.measured import emitted_tokens, is_timed
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict

ALGORITHMS = ("ucb", "exp3", "epsilon_greedy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandit(Policy):
    """Try the depths, and play what brings the most tokens per second; one depth for all rows.

    Class A: rewards and random numbers are known before drafting, and the latter are independent of
    those that sample. The rules, each in ``dspark/policies/arms``:

    * ``ucb`` and ``exp3``: BanditSpec (arXiv 2505.15141) with depths 1 to 4, there for one batch;
    * ``epsilon_greedy``: TLT's bucketed rule (https://github.com/mit-han-lab/fastrl), with its
      buckets of batch sizes.

    A reward is the tokens that a step emitted over its seconds, wall or modelled, whichever the
    engine's clock tells. Rewards at different batch sizes do not compare, so there is one bandit a
    bucket. A step that took no time teaches nothing.

    Way back from 0, if 0 is among the depths: the rule has to play every arm again and again, which
    excludes ``bonus = "total"`` and ``epsilon = 0``.

    Args:
        algorithm: one of the three.
        depths: the arms.
        batch_starts: smallest batch size of each bucket, the first 1.
        seed: of exploration.
        exploration: of ``ucb``, the weight of its bonus.
        bonus: of ``ucb``, "own" or "total".
        warmup_rounds: of ``ucb``, plays of every arm before its bounds count.
        epsilon: of the others, the share of uniformly random plays.
        window: of ``epsilon_greedy``, rewards remembered an arm.

    Raises:
        ValueError: a field is outside its range, or 0 among the depths without a way back.
    """

    algorithm: str = "ucb"
    depths: list[int] = field(default_factory=lambda: [1, 2, 3, 4])
    batch_starts: list[int] = field(default_factory=lambda: [1, 2, 5, 21])
    seed: int = 0
    exploration: float = 6.0
    bonus: str = TOTAL
    warmup_rounds: int = 2
    epsilon: float = 0.1
    window: int = 300

    def __post_init__(self) -> None:
        require_starts(self.batch_starts, "batch_starts")
        for depth in self.depths:
            require_depth(depth, "each of depths")
        checks = (
            (self.algorithm in ALGORITHMS, "algorithm", f"one of {', '.join(ALGORITHMS)}"),
            (len(self.depths) > 0, "depths", "at least one depth"),
            (len(set(self.depths)) == len(self.depths), "depths", "different from each other"),
            (self.seed >= 0, "seed", ">= 0"),
            (0 <= self.exploration < float("inf"), "exploration", ">= 0"),
            (self.bonus in (OWN, TOTAL), "bonus", f"{OWN} or {TOTAL}"),
            (self.warmup_rounds >= 1, "warmup_rounds", ">= 1"),
            (0 <= self.epsilon <= 1, "epsilon", "in [0, 1]"),
            (self.window >= 1, "window", ">= 1 reward"),
        )
        for holds, name, rule in checks:
            if not holds:
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")
        if 0 in self.depths and not self._rule().always_returns:
            setting = f"bonus={self.bonus}" if self.algorithm == "ucb" else f"epsilon={self.epsilon}"
            raise ValueError(
                f"depths hold 0, from which {self.algorithm} with {setting} may never return: leave 0 out, "
                "or set bonus=own, exploration or epsilon above 0"
            )

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """The deepest arm."""
        return max(self.depths)

    def init(self, num_slots: int) -> State:
        """A tuple of the rule's states, one a bucket."""
        return (self._rule().init(len(self.depths)),) * len(self.batch_starts)

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], the arm's depth everywhere."""
        return torch.full_like(ctx.slots, self.depths[self._arm(ctx, state)])

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The states with the step's reward in that of its bucket."""
        if not is_timed(verdict):
            return state
        bucket = bucket_of(self.batch_starts, ctx.num_rows)
        reward = emitted_tokens(verdict) / verdict.step_time_s
        return replaced(state, bucket, self._rule().learn(state[bucket], self._arm(ctx, state), reward))

    def _rule(self) -> ArmRule:
        if self.algorithm == "ucb":
            return Ucb(exploration=self.exploration, bonus=self.bonus, warmup_rounds=self.warmup_rounds)
        if self.algorithm == "exp3":
            return Exp3(epsilon=self.epsilon)
        return EpsilonGreedy(epsilon=self.epsilon, window=self.window)

    def _arm(self, ctx: StepContext, state: State) -> int:
        """The step's arm; the same whenever it is asked for."""
        rule = self._rule()
        drawn = chances(self.seed, ctx.step, rule.num_chances) if rule.num_chances else ()
        return rule.choose(state[bucket_of(self.batch_starts, ctx.num_rows)], drawn)
