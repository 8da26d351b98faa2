"""Order-dependent toy language models in fractions.

A *path* is a tuple of tokens; a ``Table`` gives the law of the token after each path. A ``Joint`` is
a law of whole paths, without the paths of probability 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

Path = tuple[int, ...]
Law = tuple[Fraction, ...]
Table = Mapping[Path, Law]
Joint = dict[Path, Fraction]


def random_table(rng: random.Random, vocab_size: int, depth: int, *, zeros: float = 0.0) -> dict[Path, Law]:
    """A law of its own after every path of up to ``depth`` tokens.

    Args:
        rng: draws the weights.
        vocab_size: V.
        depth: longest path that has a law.
        zeros: share of entries that are 0.
    """
    table: dict[Path, Law] = {}
    for path in paths(vocab_size, depth):
        weights = [0 if rng.random() < zeros else rng.randint(1, 12) for _ in range(vocab_size)]
        weights[rng.randrange(vocab_size)] += 1
        table[path] = tuple(Fraction(weight, sum(weights)) for weight in weights)
    return table


def constant_table(law: Sequence[Fraction], depth: int) -> dict[Path, Law]:
    """The same law after every path of up to ``depth`` tokens."""
    return dict.fromkeys(paths(len(law), depth), tuple(law))


def point(token: int, vocab_size: int) -> Law:
    """All mass on one token."""
    return tuple(Fraction(int(v == token)) for v in range(vocab_size))


def arg_max(law: Law) -> int:
    """The likeliest token; of equal ones the first."""
    return max(range(len(law)), key=lambda token: (law[token], -token))


def paths(vocab_size: int, depth: int) -> Iterator[Path]:
    """All paths of 0..depth tokens."""
    for length in range(depth + 1):
        yield from product(range(vocab_size), repeat=length)


def complete(path: Path, weight: Fraction, target: Table, length: int) -> Joint:
    """The law of paths of ``length`` tokens that start with ``path`` and go on as the target does."""
    if len(path) == length:
        return {path: weight}
    joint: Joint = {}
    for token, p in enumerate(target[path]):
        if p:
            joint |= complete((*path, token), weight * p, target, length)
    return joint


def target_joint(target: Table, length: int) -> Joint:
    """The target's own law of the first ``length`` tokens."""
    return complete((), Fraction(1), target, length)


def total_variation(a: Mapping[Any, Fraction], b: Mapping[Any, Fraction]) -> Fraction:
    """Half the summed distance of two laws: the largest difference in the probability of any event."""
    return sum((abs(a.get(key, Fraction(0)) - b.get(key, Fraction(0))) for key in {*a, *b}), Fraction(0)) / 2
