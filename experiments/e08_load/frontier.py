"""The frontier of a policy: throughput against the speed of one user, and two of them held together.

A point a load. More load is more throughput and slower users, so a policy is a curve, and two are compared
where both curves are: at one speed of a user, or at one throughput. Between loads the curve is a straight
line in logarithms; where they are compared is the geometric middle of what both reach.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.analysis.load import LoadPoint

Frontier = tuple[tuple[float, float], ...]
"""(tokens/s of one user, tokens/s of all) a load."""


def frontier(points: Sequence[LoadPoint]) -> Frontier:
    """The frontier of a policy's points."""
    return tuple((point.modelled_user_tokens_per_s, point.modelled_tokens_per_s) for point in points)


def matched_user_speed(ours: Frontier, theirs: Frontier) -> tuple[float, float] | None:
    """A user's tokens/s that both reach, and our throughput over theirs there; None: they never meet."""
    return _matched(ours, theirs)


def matched_throughput(ours: Frontier, theirs: Frontier) -> tuple[float, float] | None:
    """A throughput that both reach, and the speed of our users over that of theirs there; None: none."""
    return _matched(*(tuple((all_of, one) for one, all_of in curve) for curve in (ours, theirs)))


def _matched(ours: Frontier, theirs: Frontier) -> tuple[float, float] | None:
    """The middle of the first coordinates that both have, and the ratio of the second ones there."""
    low = max(min(x for x, _ in curve) for curve in (ours, theirs))
    high = min(max(x for x, _ in curve) for curve in (ours, theirs))
    if low > high:
        return None
    middle = math.sqrt(low * high)
    return middle, _at(ours, middle) / _at(theirs, middle)


def _at(curve: Frontier, x: float) -> float:
    """The second coordinate at a first one, by straight lines in logarithms."""
    xs, ys = np.log(np.array(sorted(curve))).T
    return float(np.exp(np.interp(math.log(x), xs, ys)))
