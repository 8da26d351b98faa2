"""Upper confidence bounds: the arm that could be the best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.policies.arms.base import ArmRule, replaced

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN, TOTAL = "own", "total"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedArms:
    """What the arms brought."""

    counts: tuple[int, ...]
    means: tuple[float, ...]
    largest: float  # reward seen so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Ucb(ArmRule):
    """Arg max of ``mean + sqrt(exploration · ln t / n)``, after ``warmup_rounds`` rounds of all arms.

    The rule of BanditSpec (Hou et al., arXiv 2505.15141), whose exploration weight is 6; ``t`` is the
    number of the play. Means are in shares of the largest reward seen, so that a bonus means the
    same on every machine. ``n`` is

    * ``own``: the arm's plays, as in the paper and in UCB1 (Auer et al., 2002). Neglected arms return.
    * ``total``: all plays, as in its released code, with which the published numbers were made. The
      bonus is the same for all arms then, so that the best mean is played for good.
    """

    exploration: float = 6.0
    bonus: str = TOTAL
    warmup_rounds: int = 2

    @property
    def always_returns(self) -> bool:
        """With bonuses of their own, arms do."""
        return self.bonus == OWN and self.exploration > 0

    def init(self, num_arms: int) -> PlayedArms:
        """Nothing played."""
        return PlayedArms(counts=(0,) * num_arms, means=(0.0,) * num_arms, largest=0.0)

    def choose(self, state: PlayedArms, chances: Sequence[float]) -> int:
        """The next arm of the warm-up, then that of the largest bound; the first of equals."""
        num_plays, num_arms = sum(state.counts), len(state.counts)
        if num_plays < self.warmup_rounds * num_arms:
            return num_plays % num_arms
        gain = self.exploration * math.log(num_plays + 1)
        bounds = [
            mean / state.largest + math.sqrt(gain / (count if self.bonus == OWN else num_plays))
            for mean, count in zip(state.means, state.counts, strict=True)
        ]
        return bounds.index(max(bounds))

    def learn(self, state: PlayedArms, arm: int, reward: float) -> PlayedArms:
        """The arm's mean and count moved on."""
        count = state.counts[arm] + 1
        mean = state.means[arm] + (reward - state.means[arm]) / count
        return PlayedArms(
            counts=replaced(state.counts, arm, count),
            means=replaced(state.means, arm, mean),
            largest=max(state.largest, reward),
        )
