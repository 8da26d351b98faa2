"""The audit of one policy: which worlds it is let loose on, and what is found there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from dspark.analysis.audit.cases import NAMED, random_worlds
from dspark.analysis.audit.drive import Drive
from dspark.analysis.audit.flips import find_flip, hunt
from dspark.analysis.audit.influence import influence
from dspark.analysis.audit.output_law import output_law
from dspark.analysis.audit.rules import EXACT_RULES, ExactRule
from dspark.analysis.audit.verdict import Audit, WorldResult
from dspark.analysis.audit.words import counterexample
from dspark.policies.base import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark.analysis.audit.tables import Joint
    from dspark.analysis.audit.traces import TraceResult
    from dspark.analysis.audit.world import World

Case = Literal["appendix_a", "sampled_drop", "tetris", "random", "traces", "all"]


FEW = 8
"""Worlds of a hunt whose output law is enumerated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is looked at.

    Raises:
        ValueError: a number is out of range.
    """

    num_random: int  # random worlds
    num_hunted: int  # random decisions in which a bias is hunted for
    num_probed: int  # random steps in which signals are changed
    seed: int

    def __post_init__(self) -> None:
        for field in ("num_random", "num_hunted", "num_probed", "seed"):
            value = getattr(self, field)
            if value < 0:
                raise ValueError(f"{field} must be >= 0, got {value}")


def examine(
    name: str,
    policy: Policy,
    rule: ExactRule,
    *,
    case: Case,
    effort: Effort,
    deterministic: bool = False,
    traced: Callable[[Policy], TraceResult] | None = None,
) -> Audit:
    """The audit of ``policy``.

    Args:
        name: the policy's in reports.
        policy: as it would run.
        rule: whose output is judged; others are enumerated for comparison.
        case: a published world, ``random`` ones, the ``traces`` test alone, or all of it.
        effort: how much.
        deterministic: the drafter's tokens are no samples.
        traced: the perturbation test on real steps, where it is part of the case.

    Raises:
        ValueError: the policy answers with what is no depth, or not always alike.
    """
    worlds = [replace(world, deterministic=deterministic) for world in _worlds(policy, case, effort)]
    compared = [world for world in worlds if not world.warm_up_steps]  # half the time, and as telling
    caught = _hunted(policy, case, effort)
    if not (deterministic or rule.any_length_exact):
        biased = _first_biased(policy, caught, rule)
        worlds, compared = worlds + biased, compared + biased
    others = [other for other in EXACT_RULES.values() if other is not rule]
    return Audit(
        policy=name,
        declared=policy.lossless_class,
        rule=rule.name,
        any_length_exact=rule.any_length_exact or deterministic,
        deterministic=deterministic,
        worlds=tuple(_result(policy, world, rule) for world in _small(worlds, rule)),
        others={other.name: _largest_bias(policy, compared, other) for other in others},
        num_hunted=effort.num_hunted if case in ("random", "all") else 0,
        num_caught=len(caught),
        influence=influence(policy, num_steps=effort.num_probed, seed=effort.seed),
        traces=None if traced is None else traced(policy),
    )


def _worlds(policy: Policy, case: Case, effort: Effort) -> list[World]:
    kinds = _drafter_kinds(policy)
    names = {"all": list(NAMED), "random": [], "traces": []}.get(case, [case])
    made = [make() for name in names for make in NAMED[name]]
    worlds = [replace(world, autoregressive=kind) for world in made for kind in kinds]
    if case in ("random", "all"):
        worlds += random_worlds(effort.num_random, effort.seed, autoregressive=kinds)
    return worlds


def _drafter_kinds(policy: Policy) -> tuple[bool, ...]:
    """Whether the drafters of worlds are autoregressive: both kinds, where the policy tells them apart."""
    return (False,) if type(policy).proceed is Policy.proceed else (False, True)


def _small(worlds: Sequence[World], rule: ExactRule) -> list[World]:
    """The worlds that can be enumerated under a rule."""
    limit = rule.max_vocabulary
    return [w for w in worlds if limit is None or max(r.vocab_size for r in w.requests) <= limit]


def _largest_bias(policy: Policy, worlds: Sequence[World], rule: ExactRule) -> Fraction:
    biases = (output_law(policy, world, rule).bias for world in _small(worlds, rule))
    return max(biases, default=Fraction(0))


def _hunted(policy: Policy, case: Case, effort: Effort) -> list[World]:
    """Worlds in which a decision hangs on its token, where the case hunts for them."""
    if case not in ("random", "all"):
        return []
    kinds = _drafter_kinds(policy)
    return hunt(policy, tries=effort.num_hunted, seed=effort.seed, autoregressive=kinds)


def _first_biased(policy: Policy, caught: Sequence[World], rule: ExactRule) -> list[World]:
    """The first of the caught worlds whose output law is biased; a flip need not bias it."""
    return next(([world] for world in caught[:FEW] if output_law(policy, world, rule).bias), [])


def _result(policy: Policy, world: World, rule: ExactRule) -> WorldResult:
    law = output_law(policy, world, rule)
    text = None
    if law.bias:
        text = counterexample(world, law, find_flip(Drive(policy, world, rule), law.visited))
    rows = range(len(world.requests))
    sizes = [request.vocab_size for request in world.requests]
    return WorldResult(
        world=world.name,
        rule=rule.name,
        autoregressive=world.autoregressive,
        bias=law.bias,
        horizon=world.horizon,
        token=world.shown,
        law=tuple(_masses(law.row(row), world.shown, sizes[row]) for row in rows),
        target=tuple(_masses(law.wanted_row(row), world.shown, sizes[row]) for row in rows),
        words=text,
    )


def _masses(outputs: Joint, token: int, size: int) -> tuple[Fraction, ...]:
    """The law of the token-th token (from 1) of these outputs."""
    masses = [Fraction(0)] * size
    for output, mass in outputs.items():
        masses[output[token - 1]] += mass
    return tuple(masses)
