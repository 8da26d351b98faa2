"""Bandit rules: which arm to play next, from the rewards of those played. One rule a file."""

from dspark.policies.arms.base import ArmRule
from dspark.policies.arms.epsilon_greedy import EpsilonGreedy
from dspark.policies.arms.exp3 import Exp3
from dspark.policies.arms.ucb import Ucb

__all__ = ["ArmRule", "EpsilonGreedy", "Exp3", "Ucb"]
