"""Buckets of batch sizes, for policies that keep one state a bucket."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def require_starts(starts: Sequence[int], name: str) -> None:
    """Refuse what is no list of buckets: their smallest batch sizes, ascending, the first at 1.

    Raises:
        ValueError: ``starts`` breaks the rule.
    """
    shown = list(starts)
    whole = all(isinstance(start, int) and not isinstance(start, bool) for start in shown)
    if not shown or not whole or shown[0] != 1 or any(low >= high for low, high in pairwise(shown)):
        raise ValueError(f"{name} must be ascending batch sizes that start at 1, got {shown}")


def bucket_of(starts: Sequence[int], num_rows: int) -> int:
    """Index of the bucket that ``num_rows`` falls into; no rows count as one."""
    return max(0, bisect_right(starts, num_rows) - 1)
