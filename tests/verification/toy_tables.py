"""Order-dependent toy language models, and the exact output law of one round, in fractions.

Everything here is written from the papers and shares no code with the package: it is the reference
that the package's laws are compared with.

A *path* is a tuple of tokens; a ``Table`` gives the law of the token after each path.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product

Path = tuple[int, ...]
Law = tuple[Fraction, ...]
Table = Mapping[Path, Law]
Joint = dict[Path, Fraction]
Outcome = tuple[int, Fraction, Law]
"""Accepted drafts, its probability, and the law of the token after them."""

Stop = Callable[[Path, Law], bool]
"""Stop after including the last token of the path, which was drawn from the law (class B)."""

Trim = Callable[[Path, Table], Sequence[tuple[int, Fraction]]]
"""Verify lengths of a drafted path, with their probabilities."""


def never(path: Path, law: Law) -> bool:
    """Draft to full depth."""
    return False


def unless_likely(path: Path, law: Law) -> bool:
    """Stop after a token that was itself unlikely: reads q of the *sampled* token."""
    return law[path[-1]] < Fraction(1, 2)


def after_token_one(path: Path, law: Law) -> bool:
    """Stop after token 1."""
    return path[-1] == 1


def whole(path: Path, draft: Table) -> Sequence[tuple[int, Fraction]]:
    """Verify all that was drafted."""
    return [(len(path), Fraction(1))]


def while_drafter_is_sure(path: Path, draft: Table) -> Sequence[tuple[int, Fraction]]:
    """Cut where the drafter's largest probability is low, whatever was drawn (class C)."""
    length = 0
    while length < len(path) and max(draft[path[:length]]) >= Fraction(1, 2):
        length += 1
    return [(length, Fraction(1))]


def random_table(rng: random.Random, vocab_size: int, depth: int, *, zeros: float = 0.15) -> dict[Path, Law]:
    """A law of its own after every path of up to ``depth`` tokens, some entries zero."""
    table: dict[Path, Law] = {}
    for path in paths(vocab_size, depth):
        weights = [0 if rng.random() < zeros else rng.randint(1, 12) for _ in range(vocab_size)]
        weights[rng.randrange(vocab_size)] += 1
        table[path] = tuple(Fraction(weight, sum(weights)) for weight in weights)
    return table


def point_table(rng: random.Random, vocab_size: int, depth: int) -> dict[Path, Law]:
    """One certain token after every path: a deterministic drafter."""
    return {path: point(rng.randrange(vocab_size), vocab_size) for path in paths(vocab_size, depth)}


def constant_table(law: Sequence[Fraction], depth: int) -> dict[Path, Law]:
    """The same law after every path."""
    return dict.fromkeys(paths(len(law), depth), tuple(law))


def point(token: int, vocab_size: int) -> Law:
    """All mass on one token."""
    return tuple(Fraction(int(v == token)) for v in range(vocab_size))


def paths(vocab_size: int, depth: int) -> Iterator[Path]:
    """All paths of 0..depth tokens."""
    for length in range(depth + 1):
        yield from product(range(vocab_size), repeat=length)


def drafts(draft: Table, depth: int, stop: Stop = never) -> Iterator[tuple[Path, Fraction]]:
    """Drafted paths and their probabilities."""

    def extend(path: Path, weight: Fraction) -> Iterator[tuple[Path, Fraction]]:
        if len(path) == depth or (path and stop(path, draft[path[:-1]])):
            yield path, weight
            return
        for token, q in enumerate(draft[path]):
            if q:
                yield from extend((*path, token), weight * q)

    return extend((), Fraction(1))


def target_joint(target: Table, length: int) -> Joint:
    """The target's own law of the first ``length`` tokens."""
    return complete((), Fraction(1), target, length)


def complete(path: Path, weight: Fraction, target: Table, length: int) -> Joint:
    """The law of paths of ``length`` tokens that start with ``path`` and go on as the target does."""
    if len(path) == length:
        return {path: weight}
    joint: Joint = {}
    for token, p in enumerate(target[path]):
        if p:
            joint |= complete((*path, token), weight * p, target, length)
    return joint


def token_outcomes(path: Path, target: Table, draft: Table) -> Iterator[Outcome]:
    """Token-wise rejection of one drafted path (arXiv 2211.17192, algorithm 1)."""
    alive = Fraction(1)
    for k, token in enumerate(path):
        p, q = target[path[:k]], draft[path[:k]]
        accept = min(Fraction(1), p[token] / q[token])
        if accept < 1:
            yield k, alive * (1 - accept), _normalised([max(a - b, 0) for a, b in zip(p, q, strict=True)])
        alive *= accept
    if alive:
        yield len(path), alive, target[path]


def block_outcomes(path: Path, target: Table, draft: Table) -> Iterator[Outcome]:
    """Block verification of one drafted path (arXiv 2403.10444, algorithm 2), longest prefix first."""
    weights = [Fraction(1)]
    for k, token in enumerate(path):
        weights.append(min(Fraction(1), weights[-1] * target[path[:k]][token] / draft[path[:k]][token]))
    longer_failed = Fraction(1)
    for k in range(len(path), -1, -1):
        if k == len(path):
            passes, law = weights[k], target[path]
        else:
            law = [
                max(weights[k] * a - b, Fraction(0))
                for a, b in zip(target[path[:k]], draft[path[:k]], strict=True)
            ]
            surplus = sum(law, Fraction(0))
            passes = surplus / (surplus + 1 - weights[k]) if surplus + 1 > weights[k] else Fraction(1)
            passes = Fraction(1) if k == 0 else passes
        if longer_failed * passes:
            yield k, longer_failed * passes, _normalised(law)
        longer_failed *= 1 - passes


def _normalised(law: Sequence[Fraction]) -> Law:
    mass = sum(law, Fraction(0))
    return tuple(entry / mass for entry in law)


Rule = Callable[[Path, Table, Table], Iterator[Outcome]]


def output_joint(
    rule: Rule, target: Table, draft: Table, depth: int, *, stop: Stop = never, trim: Trim = whole
) -> Joint:
    """The law of the first ``depth + 1`` output tokens: one round, then plain decoding."""
    joint: Joint = defaultdict(Fraction)
    for path, weight in drafts(draft, depth, stop):
        for length, share in trim(path, draft):
            for accepted, probability, law in rule(path[:length], target, draft):
                for token, p in enumerate(law):
                    ways = weight * share * probability * p
                    for output, mass in complete((*path[:accepted], token), ways, target, depth + 1).items():
                        joint[output] += mass
    return {path: mass for path, mass in joint.items() if mass}


def expected_accepted(rule: Rule, target: Table, draft: Table, depth: int) -> Fraction:
    """Mean number of accepted drafts of one round."""
    return sum(
        (
            weight * accepted * probability
            for path, weight in drafts(draft, depth)
            for accepted, probability, _ in rule(path, target, draft)
        ),
        Fraction(0),
    )
