"""The exact law of what the requests of a toy world emit under a policy."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dspark.analysis.audit.drive import Drive, Situation
from dspark.analysis.audit.tables import total_variation

if TYPE_CHECKING:
    from dspark.analysis.audit.rules import ExactRule
    from dspark.analysis.audit.tables import Joint, Path
    from dspark.analysis.audit.world import World
    from dspark.policies.base import Policy

Outputs = tuple["Path", ...]
"""One completed output a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLaw:
    """What comes out, and what should."""

    joint: Mapping[Outputs, Fraction]  # over all rows
    target: Mapping[Outputs, Fraction]
    visited: tuple[Situation, ...]  # every situation in which the policy decided

    @property
    def bias(self) -> Fraction:
        """Total variation of the joint law over all rows."""
        return total_variation(self.joint, self.target)

    def row(self, row: int, length: int | None = None) -> Joint:
        """The law of a row's output, or of its first ``length`` tokens."""
        return _marginal(self.joint, row, length)

    def wanted_row(self, row: int, length: int | None = None) -> Joint:
        """What that law should be."""
        return _marginal(self.target, row, length)


def output_law(policy: Policy, world: World, rule: ExactRule) -> OutputLaw:
    """The joint law of the completed outputs of all rows, enumerated over drafts and outcomes.

    Courses of events that lead to the same outputs, noise and policy state are followed as one.

    Raises:
        ValueError: the policy answers with what is no depth.
    """
    drive = Drive(policy, world, rule)
    start = warmed_up(drive)
    present: dict[Hashable, tuple[Situation, Fraction]] = {_key(start): (start, Fraction(1))}
    joint: dict[Outputs, Fraction] = {}
    visited: list[Situation] = []
    while present:
        following: dict[Hashable, tuple[Situation, Fraction]] = {}
        for situation, weight in present.values():
            visited.append(situation)
            for after, share in drive.step(situation):
                if drive.is_over(after):
                    joint[after.outputs] = joint.get(after.outputs, Fraction(0)) + weight * share
                    continue
                key = _key(after)
                met, so_far = following.get(key, (after, Fraction(0)))
                following[key] = met, so_far + weight * share
        present = following
    rows = [world.target_joint(rule, row) for row in range(len(world.requests))]
    target: dict[Outputs, Fraction] = {
        outputs: prod((law[output] for law, output in zip(rows, outputs, strict=True)), start=Fraction(1))
        for outputs in product(*rows)
    }
    return OutputLaw(joint=joint, target=target, visited=tuple(visited))


def warmed_up(drive: Drive) -> Situation:
    """The situation after the world's warm-up: one sampled history, then new tokens.

    Exactness must hold from every state that a past can lead to, so one past, drawn by a seeded
    generator, is as good a start as the first step.
    """
    rng = random.Random(drive.world.seed)

    def one(chances: Sequence[Any]) -> list[tuple[Any, Fraction]]:
        weights = [float(chance.probability) for chance in chances]
        return [(rng.choices(chances, weights)[0], Fraction(1))]

    situation = drive.begin()
    for _ in range(drive.world.warm_up_steps if drive.learns else 0):
        situation, _ = next(drive.step(situation, one))
        situation = _restarted(situation, drive.world.horizon)
    return _restarted(situation, 0)


def _restarted(situation: Situation, length: int) -> Situation:
    """The situation with outputs of ``length`` tokens or more counted as past; their rows go on anew."""
    ends = [len(output) >= length for output in situation.outputs]
    emitted = zip(situation.past, situation.outputs, ends, strict=True)
    return replace(
        situation,
        outputs=tuple(() if end else output for output, end in zip(situation.outputs, ends, strict=True)),
        past=tuple(past + len(output) * end for past, output, end in emitted),
        known=tuple(() if end else known for known, end in zip(situation.known, ends, strict=True)),
    )


def _marginal(joint: Mapping[Outputs, Fraction], row: int, length: int | None) -> Joint:
    law: Joint = {}
    for outputs, mass in joint.items():
        start = outputs[row][:length]
        law[start] = law.get(start, Fraction(0)) + mass
    return law


def _key(situation: Situation) -> Hashable:
    """Equal for situations that go on alike; step and past are equal in all that are compared."""
    return situation.outputs, situation.known, fingerprint(situation.state)


def fingerprint(state: Any) -> Hashable:
    """Equal for equal states, whatever a policy keeps; what cannot be hashed equals only itself."""
    if isinstance(state, Tensor):
        return tuple(state.shape), state.dtype, state.contiguous().numpy().tobytes()
    if is_dataclass(state) and not isinstance(state, type):
        return type(state), tuple(fingerprint(getattr(state, field.name)) for field in fields(state))
    if isinstance(state, Mapping):
        return tuple((key, fingerprint(value)) for key, value in state.items())
    if isinstance(state, Sequence) and not isinstance(state, str | bytes):
        return tuple(fingerprint(item) for item in state)
    return (type(state), state) if isinstance(state, Hashable) else _Itself(state)


class _Itself:
    """An object that equals only itself, kept alive so that nothing else takes its place."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)
