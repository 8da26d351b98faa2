"""The best recent median, and now and then any arm."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from dspark.policies.arms.base import ArmRule, replaced

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRewards:
    """The last rewards of each arm, the newest last."""

    windows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGreedy(ArmRule):
    """With probability ``epsilon`` any arm, else that of the largest median of its last rewards.

    The rule inside TLT's bucketed bandit (https://github.com/mit-han-lab/fastrl), with its epsilon
    of 0.1 and window of 300. A median shrugs off the odd slow step, and a window forgets a drafter
    that has since been trained. Arms without a reward come first.
    """

    num_chances: ClassVar[int] = 2

    epsilon: float = 0.1
    window: int = 300

    @property
    def always_returns(self) -> bool:
        """By exploring."""
        return self.epsilon > 0

    def init(self, num_arms: int) -> RecentRewards:
        """Nothing played."""
        return RecentRewards(windows=((),) * num_arms)

    def choose(self, state: RecentRewards, chances: Sequence[float]) -> int:
        """An arm never played, any arm, or the best one; the first of equals."""
        windows = state.windows
        if () in windows:
            return windows.index(())
        if chances[0] < self.epsilon:
            return int(chances[1] * len(windows))
        medians = [median(window) for window in windows]
        return medians.index(max(medians))

    def learn(self, state: RecentRewards, arm: int, reward: float) -> RecentRewards:
        """The reward at the end of the arm's window."""
        window = (*state.windows[arm], reward)[-self.window :]
        return RecentRewards(windows=replaced(state.windows, arm, window))
