"""What the audit of one policy found, as a record and in words."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dspark.types import LosslessClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark.analysis.audit.influence import Influence
    from dspark.analysis.audit.traces import TraceResult

Masses = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResult:
    """The output law of one world under one rule against the target's."""

    world: str
    rule: str
    autoregressive: bool
    horizon: int
    bias: Fraction  # total variation of the joint law over all rows
    token: int  # from 1: the one whose law is shown
    law: tuple[Masses, ...]  # of that token as it comes out, one a row
    target: tuple[Masses, ...]  # as it should
    words: str | None  # the counterexample; None where there is no bias

    @property
    def size(self) -> tuple[int, int]:
        """Rows and tokens: smaller worlds are easier to follow."""
        return len(self.law), self.horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All that was found about one policy under one verification rule."""

    policy: str
    declared: LosslessClass
    rule: str
    any_length_exact: bool  # the rule, or a drafter whose drafts are no samples, forgives every cut
    deterministic: bool  # the drafter
    worlds: tuple[WorldResult, ...]  # under ``rule``
    others: Mapping[str, Fraction]  # largest bias under the other rules
    num_hunted: int  # small random worlds in which decisions were looked at
    num_caught: int  # those in which one hung on its own token
    influence: Influence
    traces: TraceResult | None

    @property
    def simplest(self) -> WorldResult | None:
        """The smallest world in which the output is biased."""
        return min((world for world in self.worlds if world.bias), key=lambda world: world.size, default=None)

    @property
    def bias(self) -> Fraction:
        """The largest exact bias that was found."""
        return max((world.bias for world in self.worlds), default=Fraction(0))

    @property
    def num_flips(self) -> int:
        """Decisions, wherever they were looked at, that hung on the token they were about."""
        real = 0 if self.traces is None else len(self.traces.flips)
        return self.num_caught + self.influence.num_flips + real

    @property
    def found(self) -> LosslessClass:
        """The class that the decisions show."""
        if self.bias or self.num_flips:
            return LosslessClass.DETERMINISTIC if self.deterministic else LosslessClass.SAMPLED
        return self.influence.reach.lossless_class

    @property
    def is_biased(self) -> bool:
        """True where an output law is off, or decisions hang on tokens and nothing forgives it."""
        return self.bias > 0 or (self.num_flips > 0 and not self.any_length_exact)

    def record(self) -> dict[str, Any]:
        """The audit as plain values."""
        return {
            "policy": self.policy,
            "verification": self.rule,
            "drafter": "deterministic" if self.deterministic else "sampled",
            "class_declared": self.declared.value,
            "class_found": self.found.value,
            "biased": self.is_biased,
            "bias": float(self.bias),
            "bias_exact": str(self.bias),
            "bias_by_rule": {
                self.rule: float(self.bias),
                **{rule: float(bias) for rule, bias in self.others.items()},
            },
            "counterexample": None if self.simplest is None else self.simplest.words,
            "num_worlds": len(self.worlds),
            "num_hunted": self.num_hunted,
            "num_caught": self.num_caught,
            "num_decisions": self.influence.num_decisions,
            "num_flips": self.influence.num_flips,
            "num_trace_decisions": None if self.traces is None else self.traces.num_decisions,
            "num_trace_flips": None if self.traces is None else len(self.traces.flips),
        }
