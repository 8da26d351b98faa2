"""Verification rules as exact chances: how a draft is drawn, and what verification makes of it.

``Known`` is what earlier draws have revealed of the randomness that later ones use again, as the
regions of :mod:`noise` for the positions after the committed tokens. Rules with fresh numbers for
every round reveal nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from dspark.analysis.audit import noise
from dspark.analysis.audit.laws import Outcome, block_outcomes, token_outcomes
from dspark.analysis.audit.tables import arg_max, point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dspark.analysis.audit.tables import Law, Path
    from dspark.verification.base import Verification

Known = tuple[noise.Region, ...]
ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that a drafter may draw."""

    token: int
    probability: Fraction
    known: Known


@dataclass(frozen=True, slots=True)
class End:
    """What a verification may come to: some drafts accepted, and the token after them."""

    accepted: int
    next_token: int
    probability: Fraction
    known: Known  # about the positions after next_token


class ExactRule(ABC):
    """Abstract; concrete rules are final and stateless."""

    name: str
    any_length_exact: ClassVar[bool]  # exact whatever looked at the draft before cutting it
    tells_q: ClassVar[bool]  # the draft carries its q
    max_vocabulary: ClassVar[int | None] = None  # of worlds that are enumerated in reasonable time

    @abstractmethod
    def draw(self, law: Law, offset: int, known: Known) -> list[Drawn]:
        """Tokens that a sampling drafter may draw ``offset`` positions past the committed ones."""

    @abstractmethod
    def ends(self, drafts: Path, p: Sequence[Law], q: Sequence[Law], known: Known) -> list[End]:
        """What verifying ``drafts`` may come to.

        Args:
            drafts: the tokens that the target sees.
            p: target laws after 0..len(drafts) of them.
            q: laws they were drawn from.
            known: what has been revealed before.
        """

    def target_law(self, law: Law) -> Law:
        """What the output of this rule must follow where the target's law is ``law``."""
        return law


@dataclass(frozen=True, slots=True)
class ExactSampling(ExactRule):
    """Rejection sampling, token by token or in blocks, with numbers of its own for every round."""

    name: str
    outcomes: Callable[[Path, Sequence[Law], Sequence[Law]], Iterator[Outcome]]
    any_length_exact: ClassVar[bool] = False
    tells_q: ClassVar[bool] = True

    def draw(self, law: Law, offset: int, known: Known) -> list[Drawn]:
        """Every token that q can draw."""
        return [Drawn(token, q, known) for token, q in enumerate(law) if q]

    def ends(self, drafts: Path, p: Sequence[Law], q: Sequence[Law], known: Known) -> list[End]:
        """Every accepted count with every token that can follow it."""
        return [
            End(accepted, token, chance * share, known)
            for accepted, chance, law in self.outcomes(drafts, p, q)
            for token, share in enumerate(law)
            if share
        ]


class ExactCoupled(ExactRule):
    """Drafter and target race by the position's own noise; equal winners are accepted."""

    name = "coupled"
    any_length_exact: ClassVar[bool] = True
    tells_q: ClassVar[bool] = False
    max_vocabulary: ClassVar[int | None] = 3  # regions of noise have V - 1 dimensions

    def draw(self, law: Law, offset: int, known: Known) -> list[Drawn]:
        """The race's winners, given what the noise at the position has shown."""
        known = _upto(known, offset, len(law))
        return [
            Drawn(token, chance, (*known[:offset], region, *known[offset + 1 :]))
            for token, chance, region in noise.race(known[offset], law)
        ]

    def ends(self, drafts: Path, p: Sequence[Law], q: Sequence[Law], known: Known) -> list[End]:
        """The target's own choices up to the first that is not the draft."""
        found: list[End] = []
        alive = [(ONE, known)]
        for k in range(len(drafts) + 1):
            choices = [
                (chance * drawn.probability, drawn)
                for chance, given in alive
                for drawn in self.draw(p[k], k, given)
            ]
            goes_on = k < len(drafts)
            alive = [(chance, d.known) for chance, d in choices if goes_on and d.token == drafts[k]]
            found += [
                End(k, d.token, chance, d.known[k + 1 :])
                for chance, d in choices
                if not (goes_on and d.token == drafts[k])
            ]
        return found


class ExactGreedy(ExactRule):
    """Arg maxima on both sides; nothing is random."""

    name = "greedy"
    any_length_exact: ClassVar[bool] = True
    tells_q: ClassVar[bool] = False

    def draw(self, law: Law, offset: int, known: Known) -> list[Drawn]:
        """The drafter's arg max."""
        return [Drawn(arg_max(law), ONE, known)]

    def ends(self, drafts: Path, p: Sequence[Law], q: Sequence[Law], known: Known) -> list[End]:
        """Drafts up to the first that is not the target's arg max, and that arg max."""
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == arg_max(p[accepted]):
            accepted += 1
        return [End(accepted, arg_max(p[accepted]), ONE, known)]

    def target_law(self, law: Law) -> Law:
        """All mass on the arg max."""
        return point(arg_max(law), len(law))


EXACT_RULES: dict[str, ExactRule] = {
    rule.name: rule
    for rule in (
        ExactSampling("rejection", token_outcomes),
        ExactSampling("block", block_outcomes),
        ExactCoupled(),
        ExactGreedy(),
    )
}
"""Every rule whose law is known exactly, by the name of the verification it stands for."""


def exact_rule(verification: Verification) -> ExactRule:
    """The exact chances of a verification rule.

    Raises:
        ValueError: the rule makes no claim that could be audited, or its law is not known here.
    """
    if not verification.lossless:
        raise ValueError(
            f"verification {verification.name!r} does not claim to follow the target, so there is nothing to "
            f"audit: choose one of {', '.join(EXACT_RULES)}"
        )
    if verification.name not in EXACT_RULES:
        raise ValueError(
            f"the exact law of verification {verification.name!r} is not known to the audit: "
            f"choose one of {', '.join(EXACT_RULES)}"
        )
    return EXACT_RULES[verification.name]


def _upto(known: Known, offset: int, vocab_size: int) -> Known:
    """What is known, with an entry for ``offset``."""
    return (*known, *[noise.whole(vocab_size)] * (offset + 1 - len(known)))
