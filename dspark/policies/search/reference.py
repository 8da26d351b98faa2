"""The searches as plain loops, to be read beside the papers and to test the fast ones against."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def ranked(survival: Sequence[Sequence[float]], lengths: Sequence[int]) -> list[tuple[float, int, int]]:
    """(survival, position from 1, row) of every candidate, best first; ties by position, then row."""
    candidates = [
        (a, position, row)
        for row, values in enumerate(survival)
        for position, a in enumerate(values[: lengths[row]], start=1)
        if a > 0
    ]
    return sorted(candidates, key=lambda each: (-each[0], each[1], each[2]))


def algorithm_1(
    survival: Sequence[Sequence[float]], lengths: Sequence[int], seconds: Callable[[int], float]
) -> list[int]:
    """Verify lengths by DSpark's Algorithm 1 (arXiv 2607.05147), step by step.

    Args:
        survival: a_{r,j}, a list a row.
        lengths: drafted tokens of each row.
        seconds: of a step with this many tokens in its pass; one over the paper's SPS.
    """
    num_rows = len(survival)
    verified = [0] * num_rows
    num_tokens, expected = num_rows, float(num_rows)
    best = expected / seconds(num_tokens)
    for a, position, row in ranked(survival, lengths):
        num_tokens += 1
        expected += a
        if not expected / seconds(num_tokens) > best:
            break
        best = expected / seconds(num_tokens)
        verified[row] = position
    return verified


def retrospective(
    survival: Sequence[Sequence[float]], lengths: Sequence[int], seconds: Callable[[int], float]
) -> list[int]:
    """Verify lengths at the best of all budgets, the smallest of the best; arguments as above."""
    num_rows = len(survival)
    candidates = ranked(survival, lengths)
    expected = float(num_rows)
    best, budget = expected / seconds(num_rows), 0
    for taken, (a, _, _) in enumerate(candidates, start=1):
        expected += a
        value = expected / seconds(num_rows + taken)
        if value > best:
            best, budget = value, taken
    return allocated(survival, lengths, budget)


def bucketed(
    survival: Sequence[Sequence[float]],
    lengths: Sequence[int],
    seconds: Callable[[int], float],
    sizes: Sequence[int],
) -> list[int]:
    """Verify lengths at the best of the budgets ``sizes``, the smallest of the best; D-Cut's objective."""
    num_rows = len(survival)
    candidates = ranked(survival, lengths)
    best, budget = -1.0, 0
    for size in sizes:
        expected = 0.0
        for a, _, _ in candidates[:size]:
            expected += a
        if expected / seconds(num_rows + size) > best:
            best, budget = expected / seconds(num_rows + size), size
    return allocated(survival, lengths, budget)


def allocated(survival: Sequence[Sequence[float]], lengths: Sequence[int], budget: int) -> list[int]:
    """Verify lengths that the ``budget`` most likely candidates make."""
    verified = [0] * len(survival)
    for _, position, row in ranked(survival, lengths)[:budget]:
        verified[row] = position
    return verified
