"""The contract of a bandit rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.policies.base import State


class ArmRule(ABC):
    """Abstract; concrete rules are frozen dataclasses, and their states are explicit.

    All hooks are pure. Rewards are positive, and larger is better.
    """

    num_chances: ClassVar[int] = 0
    """How many random numbers a choice takes."""

    @property
    @abstractmethod
    def always_returns(self) -> bool:
        """True if every arm is played again and again, whatever the rewards."""

    @abstractmethod
    def init(self, num_arms: int) -> State:
        """State before the first play."""

    @abstractmethod
    def choose(self, state: State, chances: Sequence[float]) -> int:
        """The arm to play next.

        Args:
            state: the rule's.
            chances: ``num_chances`` numbers in [0, 1).
        """

    @abstractmethod
    def learn(self, state: State, arm: int, reward: float) -> State:
        """State after ``arm``, the choice of ``state``, brought ``reward``."""


def replaced(values: tuple, index: int, value: object) -> tuple:
    """The tuple with one entry replaced."""
    return (*values[:index], value, *values[index + 1 :])
