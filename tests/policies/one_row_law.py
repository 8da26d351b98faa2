"""The exact law of one row's next tokens under a policy that trims and token-wise rejection sampling.

Two tokens; target, drafter and confidence head depend on the whole prefix. Everything is enumerated
in fractions; only the policy's decision is the package's.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from fractions import Fraction

import torch

from dspark.types import Draft, Signal
from tests.policies.listed_cost import ListedCost

Prefix = tuple[int, ...]
Table = Mapping[Prefix, Fraction]
"""Probability of token 0 after each prefix; of a head, its confidence."""

Law = dict[Prefix, Fraction]
Trim = Callable[[Draft], int]


def prefixes(depth: int) -> list[Prefix]:
    """All prefixes of up to ``depth`` tokens."""
    return [prefix for n in range(depth + 1) for prefix in itertools.product((0, 1), repeat=n)]


def random_tables(seed: int, depth: int) -> tuple[Table, Table, Table]:
    """Target, drafter and head, of their own after every prefix; the head is sure of itself or of nothing."""
    rng = random.Random(seed)
    target, drafter = (
        {prefix: Fraction(rng.randrange(1, 10), 10) for prefix in prefixes(depth)} for _ in range(2)
    )
    return target, drafter, {prefix: Fraction(rng.choice([1, 5, 9, 10]), 10) for prefix in prefixes(depth)}


def random_curve(seed: int, depth: int) -> ListedCost:
    """Seconds of passes of up to ``1 + depth`` tokens; the first draft may cost more than the others."""
    rng = random.Random(seed)
    steps = [rng.choice([0.3, 0.95]), *(rng.choice([0.05, 0.4]) for _ in range(depth - 1))]
    return ListedCost(seconds=[0.0, *itertools.accumulate(steps, initial=1.0)])


def probability(table: Table, prefix: Prefix, token: int) -> Fraction:
    """Of a token after a prefix."""
    return table[prefix] if token == 0 else 1 - table[prefix]


def completed(target: Table, prefix: Prefix, length: int, weight: Fraction = Fraction(1)) -> Law:
    """Law of the first ``length`` tokens if ``prefix`` is given, times ``weight``."""
    if len(prefix) >= length:
        return {prefix[:length]: weight}
    law: Law = {}
    for token in (0, 1):
        step = weight * probability(target, prefix, token)
        law |= completed(target, (*prefix, token), length, step)
    return law


def output_law(trim: Trim, target: Table, drafter: Table, head: Table, depth: int) -> Law:
    """Law of ``depth + 1`` tokens: a round of speculation, then the target alone."""
    law: Law = dict.fromkeys(itertools.product((0, 1), repeat=depth + 1), Fraction(0))
    for tokens in itertools.product((0, 1), repeat=depth):
        before = [tokens[:k] for k in range(depth)]
        weight = Fraction(1)
        for prefix, token in zip(before, tokens, strict=True):
            weight *= probability(drafter, prefix, token)
        outcomes = []
        verified = trim(_draft(tokens, before, drafter, head))
        for prefix, token in zip(before[:verified], tokens, strict=False):
            wanted, given = probability(target, prefix, token), probability(drafter, prefix, token)
            accept = min(Fraction(1), wanted / given)
            # of two tokens the other one has all of the residual (p - q)+
            outcomes.append(((*prefix, 1 - token), weight * (1 - accept)))
            weight *= accept
        outcomes.append((tokens[:verified], weight))
        for prefix, share in outcomes:
            for text, mass in completed(target, prefix, depth + 1, share).items():
                law[text] += mass
    return law


def _draft(tokens: Prefix, before: list[Prefix], drafter: Table, head: Table) -> Draft:
    signals = {
        Signal.CONFIDENCE: [head[prefix] for prefix in before],
        Signal.TOP1_PROBABILITY: [max(drafter[prefix], 1 - drafter[prefix]) for prefix in before],
        Signal.TOKEN_PROBABILITY: [
            probability(drafter, prefix, token) for prefix, token in zip(before, tokens, strict=True)
        ],
    }
    return Draft(
        tokens=torch.tensor([tokens]),
        lengths=torch.tensor([len(tokens)]),
        q=None,
        signals={
            name: torch.tensor([[float(value) for value in values]], dtype=torch.float64)
            for name, values in signals.items()
        },
    )
