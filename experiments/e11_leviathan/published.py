"""The numbers of Leviathan et al. (arXiv 2211.17192) as printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting1:
    """A line of table 1, where drafts cost nothing (c = ĉ = 0)."""

    alpha: float
    gamma: int
    operations: float
    speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting4:
    """A line of table 4: T5-XXL with a smaller T5 as drafter."""

    task: str
    drafter: str
    temperature: int
    gamma: int
    alpha: float
    cost_ratio: float
    expected: float  # by theorem 3.8
    measured: float  # on their machine


TABLE_1 = (
    Setting1(alpha=0.6, gamma=2, operations=1.53, speed=1.96),
    Setting1(alpha=0.7, gamma=3, operations=1.58, speed=2.53),
    Setting1(alpha=0.8, gamma=2, operations=1.23, speed=2.44),
    Setting1(alpha=0.8, gamma=5, operations=1.63, speed=3.69),
    Setting1(alpha=0.9, gamma=2, operations=1.11, speed=2.71),
    Setting1(alpha=0.9, gamma=10, operations=1.60, speed=6.86),
)

_COST_RATIO = {"small": 0.02, "base": 0.04, "large": 0.11}
_TABLE_4 = (
    ("English-German", "small", 0, 7, 0.75, 3.2, 3.4),
    ("English-German", "base", 0, 7, 0.80, 3.3, 2.8),
    ("English-German", "large", 0, 7, 0.82, 2.5, 1.7),
    ("English-German", "small", 1, 7, 0.62, 2.3, 2.6),
    ("English-German", "base", 1, 5, 0.68, 2.4, 2.4),
    ("English-German", "large", 1, 3, 0.71, 2.0, 1.4),
    ("CNN/DM", "small", 0, 5, 0.65, 2.4, 3.1),
    ("CNN/DM", "base", 0, 5, 0.73, 2.6, 3.0),
    ("CNN/DM", "large", 0, 3, 0.74, 2.0, 2.2),
    ("CNN/DM", "small", 1, 5, 0.53, 1.9, 2.3),
    ("CNN/DM", "base", 1, 3, 0.55, 1.8, 2.2),
    ("CNN/DM", "large", 1, 3, 0.56, 1.6, 1.7),
)
TABLE_4 = tuple(
    Setting4(
        task=task,
        drafter=drafter,
        temperature=temperature,
        gamma=gamma,
        alpha=alpha,
        cost_ratio=_COST_RATIO[drafter],
        expected=expected,
        measured=measured,
    )
    for task, drafter, temperature, gamma, alpha, expected, measured in _TABLE_4
)

BIGRAM = (0.2, 3, 1.25)
"""α, γ, speed-up of a bigram drafter that costs nothing."""

LENIENCE = ((0.75, 3.3), (0.80, 3.9), (0.87, 4.9))
"""α, speed-up with lenience at γ = 8, c = 0.015."""

ORACLE_GAIN = 0.6
"""§3.5: what knowing the best γ of every step would add, "up to ~60%"."""
