"""The exact law of one verification, in fractions, written from the papers.

Independent of the tensor code in :mod:`dspark.verification.acceptance`, which the tests compare
with it. ``p`` and ``q`` are the laws along the drafted path: ``p[k]`` and ``q[k]`` are those of the
token that follows k drafts, so there is one p more than there are drafts.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dspark.analysis.audit.tables import Law

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dspark.analysis.audit.tables import Path

Outcome = tuple[int, Fraction, Law]
"""Accepted drafts, the probability of it, and the law of the token after them."""

ONE = Fraction(1)


def token_outcomes(drafts: Path, p: Sequence[Law], q: Sequence[Law]) -> Iterator[Outcome]:
    """Token-wise rejection of ``drafts``, drawn from q (Leviathan et al., arXiv 2211.17192, algorithm 1)."""
    alive = ONE
    for k, token in enumerate(drafts):
        accept = min(ONE, p[k][token] / q[k][token])
        if accept < 1:
            residual = [max(a - b, Fraction(0)) for a, b in zip(p[k], q[k], strict=True)]
            yield k, alive * (1 - accept), normalised(residual)
        alive *= accept
    if alive:
        yield len(drafts), alive, p[len(drafts)]


def block_outcomes(drafts: Path, p: Sequence[Law], q: Sequence[Law]) -> Iterator[Outcome]:
    """Block verification of ``drafts``, longest prefix first (Sun et al., arXiv 2403.10444, algorithm 2)."""
    weights = [ONE]
    for k, token in enumerate(drafts):
        weights.append(min(ONE, weights[-1] * p[k][token] / q[k][token]))
    longer_failed = ONE
    for k in range(len(drafts), -1, -1):
        if k == len(drafts):
            passes, law = weights[k], list(p[k])
        else:
            law = [max(weights[k] * a - b, Fraction(0)) for a, b in zip(p[k], q[k], strict=True)]
            surplus = sum(law, Fraction(0))
            passes = surplus / (surplus + 1 - weights[k]) if surplus + 1 > weights[k] else ONE
        passes = ONE if k == 0 else passes
        if longer_failed * passes:
            yield k, longer_failed * passes, normalised(law)
        longer_failed *= 1 - passes


def normalised(law: Sequence[Fraction]) -> Law:
    """The law in proportion to these masses."""
    mass = sum(law, Fraction(0))
    return tuple(entry / mass for entry in law)
