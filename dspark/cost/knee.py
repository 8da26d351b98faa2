"""The knee of a step-time curve: the number of tokens from which a further token is paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

NUM_TRIED = 2000
MIN_RISE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The flat line and the sloped one that fit a curve best, and where they meet."""

    tokens: float  # where they meet
    flat_s: float  # seconds of a pass below
    token_s: float  # seconds of a token above
    is_inside: bool  # False: the curve rises from its first size on, so the knee lies there or below


def find_knee(tokens: Sequence[int], seconds: Sequence[float]) -> Knee | None:
    """The knee of the least-squares fit ``T(n) = flat + token * max(0, n - knee)``, or None.

    That is where the memory-bound level and the compute-bound slope of the roofline intersect. The
    knee is tried at 2000 places between the first size and the one before the last, and the two
    coefficients are solved for at each. None where the fitted line rises by less than a tenth
    of its level over all sizes: then no knee was reached.

    Args:
        tokens: sizes of the pass, ascending; three or more.
        seconds: of a pass of each.

    Raises:
        ValueError: fewer than three sizes.
    """
    if len(tokens) < 3:
        raise ValueError(f"a knee needs 3 or more sizes, got {list(tokens)}: measure more tokens")
    sizes, times = np.asarray(tokens, float), np.asarray(seconds, float)
    tried = np.union1d(np.linspace(sizes[0], sizes[-2], NUM_TRIED), sizes[:-1])
    best = min((_fit(at, sizes, times) for at in tried), key=lambda found: found[0])
    _, at, flat_s, token_s = best
    if token_s * (sizes[-1] - at) < MIN_RISE * flat_s:
        return None
    return Knee(tokens=float(at), flat_s=flat_s, token_s=token_s, is_inside=bool(at > sizes[0]))


def _fit(at: float, sizes: np.ndarray, times: np.ndarray) -> tuple[float, float, float, float]:
    """Squared error, knee, level and slope of the best fit with its knee there."""
    beyond = np.maximum(0, sizes - at)
    spread = beyond - beyond.mean()
    token_s = float(spread @ times / (spread @ spread))
    flat_s = float(times.mean() - token_s * beyond.mean())
    error = float(np.square(flat_s + token_s * beyond - times).sum())
    return error, float(at), flat_s, token_s
