"""A number of a paper beside ours, and the rule that says how far we are from it.

Nobody writes a status: it follows from the numbers, in this order.

1. There is no number of ours: *not run here*.
2. It is within ``tolerance`` of the paper's: *reproduced*.
3. It is in the range that the paper's words or picture ask for (``shape``): *shape only*.
4. Else: *not reproduced*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, SupportsFloat

if TYPE_CHECKING:
    from collections.abc import Iterable


class Status(StrEnum):
    """How a claim, or an experiment, came out."""

    REPRODUCED = "reproduced"
    SHAPE_ONLY = "shape only"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUN = "not run here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The range our number must be in, ends excluded, for what a paper says without a number to hold.

    Raises:
        ValueError: no end is given, or the range is empty.
    """

    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        if self.above is None and self.below is None:
            raise ValueError("a shape needs an end, got none: give above, below or both")
        if self.above is not None and self.below is not None and not self.above < self.below:
            raise ValueError(f"a shape needs above < below, got {self.above:g} and {self.below:g}")

    def holds(self, value: float) -> bool:
        """True inside the range."""
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)

    def __str__(self) -> str:
        ends = (f"> {self.above:g}" if self.above is not None else "", self._below)
        return " and ".join(filter(None, ends))

    @property
    def _below(self) -> str:
        return f"< {self.below:g}" if self.below is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One line of a report.

    Args:
        what: what is measured, in words that stand alone.
        paper: the published number; None where there is none, and then ``shape`` is needed.
        ours: None until it is measured.
        unit: of both numbers; empty for ratios and counts.
        tolerance: the largest distance from ``paper`` that counts as equal, in ``unit``.
        shape: what must hold of ours where it is not equal.
        note: how it was measured, or why it was not.

    Raises:
        ValueError: nothing to hold a number against, a tolerance below 0 or without a number of the
            paper's, or a number that is not finite.
    """

    what: str
    paper: float | None = None
    ours: float | None = None
    unit: str = ""
    tolerance: float = 0.0
    shape: Shape | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.paper is None and self.shape is None:
            raise ValueError(f"{self.what!r} claims nothing: give the paper's number, a shape, or both")
        if self.tolerance < 0 or (self.tolerance and self.paper is None):
            raise ValueError(
                f"the tolerance of {self.what!r} must be >= 0 and go with a number of the paper's, "
                f"got {self.tolerance:g} for {self.paper}"
            )
        for value in (self.paper, self.ours):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{self.what!r} must be a finite number, got {value}: leave it out, and why")

    def measured(self, ours: SupportsFloat, note: str | None = None) -> Claim:
        """The claim with a number of ours; a fraction or a tensor of one number is one too."""
        return replace(self, ours=float(ours), note=self.note if note is None else note)

    def left_out(self, why: str) -> Claim:
        """The claim as one that was not run, and why."""
        return replace(self, ours=None, note=why)

    @property
    def error(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def status(self) -> Status:
        """By the rule at the top of this file."""
        if self.ours is None:
            return Status.NOT_RUN
        if self.error is not None and abs(self.error) <= self.tolerance:
            return Status.REPRODUCED
        if self.shape is not None and self.shape.holds(self.ours):
            return Status.SHAPE_ONLY
        return Status.NOT_REPRODUCED


def overall(claims: Iterable[Claim]) -> Status:
    """The status of all together, by those that were run: one that is not reproduced decides.

    Else it is *reproduced* if there are published numbers and all are; a claim without one cannot be
    more than a shape, and does not lower it. Else *shape only*; *not run here* if none was run.
    """
    run = [claim for claim in claims if claim.status is not Status.NOT_RUN]
    if any(claim.status is Status.NOT_REPRODUCED for claim in run):
        return Status.NOT_REPRODUCED
    numbered = [claim for claim in run if claim.paper is not None]
    if numbered and all(claim.status is Status.REPRODUCED for claim in numbered):
        return Status.REPRODUCED
    return Status.SHAPE_ONLY if run else Status.NOT_RUN


def counts(claims: Iterable[Claim]) -> dict[Status, int]:
    """Claims by status, without the statuses that none has."""
    found = [claim.status for claim in claims]
    return {status: found.count(status) for status in Status if status in found}
