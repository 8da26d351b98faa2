"""Drafts of order-dependent toy models, and the exact output law of one round, in fractions.

The models and the laws of a verification are those of the losslessness audit. They are written from
the papers in plain fractions, apart from the tensor code that they are compared with here.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from dspark.analysis.audit import laws, tables
from dspark.analysis.audit.laws import Outcome
from dspark.analysis.audit.tables import Joint, Law, Path, Table, complete, paths, point

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


def random_table(rng: random.Random, vocab_size: int, depth: int, *, zeros: float = 0.15) -> Table:
    """A law of its own after every path of up to ``depth`` tokens, some entries zero."""
    return tables.random_table(rng, vocab_size, depth, zeros=zeros)


def point_table(rng: random.Random, vocab_size: int, depth: int) -> Table:
    """One certain token after every path: a deterministic drafter."""
    return {path: point(rng.randrange(vocab_size), vocab_size) for path in paths(vocab_size, depth)}


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


def token_outcomes(path: Path, target: Table, draft: Table) -> Iterator[Outcome]:
    """Token-wise rejection of one drafted path."""
    return laws.token_outcomes(path, *_along(path, target, draft))


def block_outcomes(path: Path, target: Table, draft: Table) -> Iterator[Outcome]:
    """Block verification of one drafted path."""
    return laws.block_outcomes(path, *_along(path, target, draft))


def _along(path: Path, target: Table, draft: Table) -> tuple[list[Law], list[Law]]:
    """The models' laws after every beginning of the path."""
    p = [target[path[:k]] for k in range(len(path) + 1)]
    return p, [draft[path[:k]] for k in range(len(path))]


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
