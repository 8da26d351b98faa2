"""What is known of the noise that drafter and target share at a position, exactly.

Coupled verification lets both race ``E_v / w_v`` with the same standard exponentials E, and the
smallest wins (Daliri, Musco and Suresh, arXiv 2408.07978). Only the direction of E matters, which
is uniform on the simplex. Every race splits the simplex along planes with rational coefficients,
so what several races on the same noise have revealed is a union of simplices with rational corners
and volumes, and no more than that need be followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dspark.analysis.audit.tables import point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dspark.analysis.audit.tables import Law

Corner = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Simplex:
    """A part of the noise's directions."""

    corners: tuple[Corner, ...]
    volume: Fraction  # of the whole, which has 1


Region = tuple[Simplex, ...]


def whole(vocab_size: int) -> Region:
    """All directions: nothing is known."""
    return (Simplex(tuple(point(v, vocab_size) for v in range(vocab_size)), Fraction(1)),)


def volume(region: Region) -> Fraction:
    """The probability of the region."""
    return sum((part.volume for part in region), Fraction(0))


def race(region: Region, law: Law) -> list[tuple[int, Fraction, Region]]:
    """Winners of a race by ``law``, with their probabilities given the region, and what each reveals."""
    won: dict[int, list[Simplex]] = {}
    for part in region:
        for winner, piece in _split(part, law):
            won.setdefault(winner, []).append(piece)
    total = volume(region)
    return [(token, volume(tuple(won[token])) / total, tuple(won[token])) for token in sorted(won)]


def _split(part: Simplex, law: Law) -> Iterator[tuple[int, Simplex]]:
    """Pieces of the part, each with the token that wins in all of it."""
    runners = [token for token, weight in enumerate(law) if weight]
    pieces = [(runners[0], part)]
    for rival in runners[1:]:
        pieces = [
            (champion if leads else rival, piece)
            for champion, whole_piece in pieces
            for leads, piece in _cut(whole_piece, champion, rival, law)
        ]
    yield from pieces


def _cut(part: Simplex, champion: int, rival: int, law: Law) -> Iterator[tuple[bool, Simplex]]:
    """Pieces of the part on either side of the plane where both arrive together; True: champion leads."""
    heights = [corner[champion] * law[rival] - corner[rival] * law[champion] for corner in part.corners]
    low = next((i for i, height in enumerate(heights) if height < 0), None)
    high = next((i for i, height in enumerate(heights) if height > 0), None)
    if low is None or high is None:
        yield low is not None, part
        return
    share = heights[low] / (heights[low] - heights[high])  # of the edge from low to high
    a, b = part.corners[low], part.corners[high]
    middle = tuple(x + share * (y - x) for x, y in zip(a, b, strict=True))
    yield from _cut(_moved(part, high, middle, share), champion, rival, law)
    yield from _cut(_moved(part, low, middle, 1 - share), champion, rival, law)


def _moved(part: Simplex, index: int, corner: Corner, share: Fraction) -> Simplex:
    """The part with one corner moved along an edge, which leaves ``share`` of its volume."""
    corners = (*part.corners[:index], corner, *part.corners[index + 1 :])
    return Simplex(corners, part.volume * share)
