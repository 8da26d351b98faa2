"""The toy worlds of the audit: three published ones, and random ones."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from dspark.analysis.audit.tables import constant_table, paths, point, random_table
from dspark.analysis.audit.world import ToyRequest, World
from dspark.cost.step_table import StepTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
    request = ToyRequest(target=constant_table(p, 2), drafter=constant_table(q, 2), confidence=confidence)
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
    broken by row give the same mean over both rows. A policy with one place for two rows sees it.
    """
    request = _plain(_law("0.3", "0.7"), _law("0.6", "0.4"))
    return World(name="tetris", requests=(request, request), horizon=2, cost=FLAT)


def tetris_at_three() -> World:
    """The same competition where three places a row are given out, one more token drafted.

    Two certain tokens come first, and a third row has four; they take 8 of 9 places. So one is left
    for the third tokens of the two requests, whose laws are those of ``tetris``.
    """
    p, q, certain = _law("0.3", "0.7"), _law("0.6", "0.4"), point(0, 2)
    target = {path: p if len(path) == 2 else certain for path in paths(2, 4)}
    drafter = {path: q if len(path) == 2 else certain for path in paths(2, 4)}
    request = ToyRequest(target=target, drafter=drafter, confidence=_overlaps(target, drafter))
    requests = (request, request, _bystander(dict.fromkeys(paths(1, 4), Fraction(1)), 5))
    return World(name="tetris at three", requests=requests, horizon=5, cost=FLAT, shown=3)


NAMED: Mapping[str, tuple[Callable[[], World], ...]] = MappingProxyType(
    {"appendix_a": (appendix_a,), "sampled_drop": (sampled_drop,), "tetris": (tetris, tetris_at_three)}
)
"""Published counterexamples by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a random world."""

    num_requests: int
    vocab_size: int
    horizon: int
    num_certain: int = 0  # first tokens that are no choice, so that deep positions can be enumerated
    num_bystanders: int = 0  # further rows without a choice, which make the batch larger


SHAPES = (
    Shape(num_requests=1, vocab_size=2, horizon=5),
    Shape(num_requests=2, vocab_size=2, horizon=4),
    Shape(num_requests=1, vocab_size=3, horizon=4),
    Shape(num_requests=2, vocab_size=2, horizon=5, num_certain=2),
    Shape(num_requests=1, vocab_size=2, horizon=4, num_bystanders=7),
    Shape(num_requests=1, vocab_size=5, horizon=3),
    Shape(num_requests=2, vocab_size=2, horizon=3, num_bystanders=3),
)
"""Those of random worlds, in turn."""

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
        world = random_world(SHAPES[shape], seed * 10_007 + number)
        yield replace(
            world,
            name=f"random {number}",
            warm_up_steps=WARM_UP_STEPS * (turn % 2),
            autoregressive=autoregressive[(turn // 2 + shape) % len(autoregressive)],
        )


def random_world(shape: Shape, seed: int) -> World:
    """A world of that shape whose laws, confidences and costs are drawn from ``seed``."""
    rng = random.Random(seed)
    requests = [_random_request(rng, shape) for _ in range(shape.num_requests)]
    requests += [
        _bystander(_random_confidence(rng, 1, shape.horizon), shape.horizon)
        for _ in range(shape.num_bystanders)
    ]
    return World(
        name=f"random, seed {seed}",
        requests=tuple(requests),
        horizon=shape.horizon,
        cost=jagged_cost(rng, len(requests) * (shape.horizon + 1)),
        seed=seed,
        shown=shape.num_certain + 1,
    )


def jagged_cost(rng: random.Random, max_tokens: int) -> StepTable:
    """A staircase, as engines with captured graphs have it: some tokens are free, others open a new step.

    Steps are high or low throughout, so that drafting pays in some worlds and does not in others.
    """
    height = rng.choice((0.1, 0.3, 1.0, 1.0))
    seconds = [1.0]
    for _ in range(max_tokens):
        jump = rng.choice((0.2, 0.5, 0.8, 1.2, 1.6, 2.0)) if rng.random() < 0.4 else 0.0
        seconds.append(round(seconds[-1] + height * jump, 2))
    return StepTable(tokens=list(range(1, len(seconds) + 1)), target_s=seconds)


def trace_cost(seed: int) -> StepTable:
    """A staircase for steps of the engine, on which drafting pays."""
    rng = random.Random(seed)
    seconds = [1.0]
    for _ in range(63):
        seconds.append(round(seconds[-1] + (rng.choice((0.1, 0.3)) if rng.random() < 0.3 else 0.0), 1))
    return StepTable(tokens=list(range(1, 65)), target_s=seconds)


def _random_request(rng: random.Random, shape: Shape) -> ToyRequest:
    target, drafter = (random_table(rng, shape.vocab_size, shape.horizon - 1) for _ in range(2))
    for path in paths(shape.vocab_size, shape.num_certain - 1):
        target[path] = drafter[path] = point(0, shape.vocab_size)
    confidence = _random_confidence(rng, shape.vocab_size, shape.horizon)
    return ToyRequest(target=target, drafter=drafter, confidence=confidence)


def _bystander(confidence: Mapping[Path, Fraction], horizon: int) -> ToyRequest:
    """A request with one possible token."""
    certain: Table = dict.fromkeys(paths(1, horizon - 1), point(0, 1))
    return ToyRequest(target=certain, drafter=certain, confidence=confidence)


def _random_confidence(rng: random.Random, vocab_size: int, horizon: int) -> dict[Path, Fraction]:
    """Tenths, more often near 0 and 1 than in between, so that decisions hang on them."""
    tenths = (0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10)
    return {path: Fraction(rng.choice(tenths), 10) for path in paths(vocab_size, horizon - 1)}


def _plain(p: Law, q: Law) -> ToyRequest:
    """The same laws after every path."""
    target, drafter = constant_table(p, 1), constant_table(q, 1)
    return ToyRequest(target=target, drafter=drafter, confidence=_overlaps(target, drafter))


def _overlaps(target: Table, drafter: Table) -> dict[Path, Fraction]:
    """The confidence that the laws earn after every path: 1 - TV(p, q)."""
    return {path: sum(map(min, target[path], drafter[path]), Fraction(0)) for path in target}


def _law(*masses: str) -> Law:
    return tuple(map(Fraction, masses))
