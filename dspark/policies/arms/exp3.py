"""Exponential weights: for rewards that may change while they are learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from dspark.policies.arms.base import ArmRule, replaced

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLosses:
    """What the arms are estimated to have cost."""

    num_plays: int
    losses: tuple[float, ...]  # estimated sums, as if every arm had been played every time
    largest: float  # reward seen so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Exp3(ArmRule):
    """Draw arms in proportion to ``exp(-η_t · estimated loss)``, mixed with the uniform law.

    EXP3 (Auer et al., SIAM Journal on Computing 32, 2002), which BanditSpec (arXiv 2505.15141) uses
    where acceptance is adversarial. A play's loss is ``1 - reward / largest reward seen``, divided
    by the probability of the play; ``η_t = sqrt(ln K / (t K))`` for K arms at play t needs no horizon
    (Bubeck and Cesa-Bianchi, arXiv 1204.5721, Theorem 3.1). The share ``epsilon`` of the uniform law
    bounds the estimates and keeps every arm in play.
    """

    num_chances: ClassVar[int] = 1

    epsilon: float = 0.1

    @property
    def always_returns(self) -> bool:
        """By the uniform share."""
        return self.epsilon > 0

    def init(self, num_arms: int) -> ArmLosses:
        """Nothing played."""
        return ArmLosses(num_plays=0, losses=(0.0,) * num_arms, largest=0.0)

    def probabilities(self, state: ArmLosses) -> list[float]:
        """The law that the next arm is drawn from."""
        num_arms = len(state.losses)
        rate = math.sqrt(math.log(num_arms) / ((state.num_plays + 1) * num_arms))
        least = min(state.losses)  # subtracted, so that no exponential overflows
        weights = [math.exp(-rate * (loss - least)) for loss in state.losses]
        total = sum(weights)
        return [(1 - self.epsilon) * weight / total + self.epsilon / num_arms for weight in weights]

    def choose(self, state: ArmLosses, chances: Sequence[float]) -> int:
        """The arm in whose share of [0, 1) the chance falls."""
        for arm, bound in enumerate(accumulate(self.probabilities(state))):
            if chances[0] < bound:
                return arm
        return len(state.losses) - 1  # the shares may sum to a rounding less than 1

    def learn(self, state: ArmLosses, arm: int, reward: float) -> ArmLosses:
        """The arm's estimate grown by its loss over the probability that it was played."""
        largest = max(state.largest, reward)
        loss = (1 - reward / largest) / self.probabilities(state)[arm]
        return ArmLosses(
            num_plays=state.num_plays + 1,
            losses=replaced(state.losses, arm, state.losses[arm] + loss),
            largest=largest,
        )
