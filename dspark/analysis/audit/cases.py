"""The toy worlds of the audit: three published ones, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from dspark.analysis.audit.tables import constant_table, paths, point, random_table
from dspark.analysis.audit.world import ToyRequest, World
from dspark.cost.step_table import StepTable

if TYPE_CHECKING:
    from dspark.analysis.audit.tables import Law, Path, Table

FLAT = StepTable(tokens=[1, 2], target_s=[1.0, 1.0])
"""A pass costs the same whatever it holds."""


def appendix_a() -> World:
    """DSpark, arXiv 2607.05147, appendix A: two drafts whose second one's worth depends on the first.

    Steps per second of 1, 2 and 3 tokens: 1.0, 0.5, 0.45. Confidence 0.8 in the first draft, then
    0.9 after A and 0 after B. An arg max over all lengths verifies both drafts after A and none
    after B, so that A comes out with 0.85 instead of 0.7.
    """
    p, q = _law("0.7", "0.3"), _law("0.5", "0.5")
    confidence = dict.fromkeys(paths(2, 2), Fraction(0))
    confidence |= {(): Fraction("0.8"), (0,): Fraction("0.9"), (1,): Fraction(0)}
    request = ToyRequest(
        target=constant_table(p, 2), drafter=constant_table(q, 2), confidence=confidence
    )
    cost = StepTable(tokens=[1, 2, 3], steps_per_s=[1.0, 0.5, 0.45])
    return World(name="appendix_a", requests=(request,), horizon=3, cost=cost)


def sampled_drop() -> World:
    """One draft of q = (0.6, 0.4) for p = (0.7, 0.3).

    Dropping it where q(x) < 0.5 keeps every A and redraws every B: 0.6 + 0.4 · 0.7 = 0.88.
    """
    return World(
        name="sampled_drop", requests=(_plain(_law("0.7", "0.3"), _law("0.6", "0.4")),), horizon=2, cost=FLAT
    )


def tetris() -> World:
    """Two requests with p = (0.3, 0.7) and q = (0.6, 0.4) that compete for one place in the pass.

    Given to the draft with the larger q(x), ties to either with 1/2: A is admitted with
    0.4 + 0.6/2 = 0.7 and B with 0.4/2 = 0.2, so that A comes out with 0.36 instead of 0.3. Ties
    broken by row give the same mean over both rows.
    """
    request = _plain(_law("0.3", "0.7"), _law("0.6", "0.4"))
    cost = StepTable(tokens=[2, 3, 4], target_s=[1.0, 1.0, 1.0])
    return World(name="tetris", requests=(request, request), horizon=2, cost=cost)


NAMED: Mapping[str, Callable[[], World]] = MappingProxyType(
    {"appendix_a": appendix_a, "sampled_drop": sampled_drop, "tetris": tetris}
)
"""Published counterexamples by name."""

SHAPES = ((1, 2, 5, 0), (2, 2, 4, 0), (1, 3, 4, 0), (2, 2, 3, 3), (1, 2, 4, 7), (1, 5, 3, 0))
"""Requests, vocabulary, horizon and bystanders of random worlds, in turn."""

WARM_UP_STEPS = 40
"""History of every second round of random worlds: policies that learn are audited new and settled."""


def random_worlds(count: int, seed: int, *, autoregressive: Sequence[bool] = (False,)) -> Iterator[World]:
    """Random order-dependent worlds of every shape, with and without a history.

    Args:
        count: of worlds.
        seed: of all that is random.
        autoregressive: kinds of drafters, in turn.
    """
    for number in range(count):
        turn, shape = divmod(number, len(SHAPES))
        num_requests, vocab_size, horizon, num_bystanders = SHAPES[shape]
        world = random_world(
            seed * 10_007 + number,
            num_requests=num_requests,
            vocab_size=vocab_size,
            horizon=horizon,
            num_bystanders=num_bystanders,
        )
        yield replace(
            world,
            name=f"random {number}",
            warm_up_steps=WARM_UP_STEPS * (turn % 2),
            autoregressive=autoregressive[(turn // 2 + shape) % len(autoregressive)],
        )


def random_world(
    seed: int, *, num_requests: int, vocab_size: int, horizon: int, num_bystanders: int = 0
) -> World:
    """A world whose laws, confidences and costs are drawn from ``seed``.

    Bystanders are further rows whose target and drafter know only one token: they make the batch
    larger, and have no say in how many courses of events there are.
    """
    rng = random.Random(seed)
    requests = [_random_request(rng, vocab_size, horizon) for _ in range(num_requests)]
    requests += [_bystander(rng, horizon) for _ in range(num_bystanders)]
    return World(
        name=f"random seed {seed}",
        requests=tuple(requests),
        horizon=horizon,
        cost=jagged_cost(rng, len(requests) * (horizon + 1)),
        seed=seed,
    )


def jagged_cost(rng: random.Random, max_tokens: int) -> StepTable:
    """A staircase, as engines with captured graphs have it: some tokens are free, others open a new step."""
    seconds = [1.0]
    for _ in range(max_tokens):
        jump = rng.choice((0.2, 0.5, 0.8, 1.2, 1.6, 2.0)) if rng.random() < 0.4 else 0.0
        seconds.append(round(seconds[-1] + jump, 1))
    return StepTable(tokens=list(range(1, len(seconds) + 1)), target_s=seconds)


def _random_request(rng: random.Random, vocab_size: int, horizon: int) -> ToyRequest:
    return ToyRequest(
        target=random_table(rng, vocab_size, horizon - 1),
        drafter=random_table(rng, vocab_size, horizon - 1),
        confidence=_random_confidence(rng, vocab_size, horizon),
    )


def _bystander(rng: random.Random, horizon: int) -> ToyRequest:
    certain: Table = dict.fromkeys(paths(1, horizon - 1), point(0, 1))
    return ToyRequest(
        target=certain, drafter=certain, confidence=_random_confidence(rng, 1, horizon)
    )


def _random_confidence(rng: random.Random, vocab_size: int, horizon: int) -> dict[Path, Fraction]:
    """Tenths, more often near 0 and 1 than in between, so that decisions hang on them."""
    tenths = (0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10)
    return {path: Fraction(rng.choice(tenths), 10) for path in paths(vocab_size, horizon - 1)}


def _plain(p: Law, q: Law) -> ToyRequest:
    """The same laws after every path, and the confidence they earn: 1 - TV(p, q)."""
    overlap = sum(map(min, p, q), Fraction(0))
    return ToyRequest(
        target=constant_table(p, 1),
        drafter=constant_table(q, 1),
        confidence=dict.fromkeys(paths(len(p), 1), overlap),
    )


def _law(*masses: str) -> Law:
    return tuple(map(Fraction, masses))
