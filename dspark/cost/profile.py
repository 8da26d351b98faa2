"""A profile: what steps of this model took on this machine, every repeat of every size.

Two kinds of measurements: passes of the target alone, by rows, tokens and cached tokens a row; and
whole steps of the engine at a given depth, of which the drafter's share and the overhead count.
Medians are derived and never stored, so what was measured can be judged later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = 1
"""The version of a profile's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a profile was measured."""

    processor: str
    num_cpus: int
    num_threads: int  # of torch
    device: str
    torch: str  # version
    transformers: str  # version


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledModel:
    """The target that was measured, and how its passes were computed."""

    name: str
    dtype: str
    numerics: str
    attention: str
    captured_tokens: tuple[int, ...]  # pass sizes with a captured graph, ascending; none: ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledDrafter:
    """What drafted in the measured steps; the rule of verification decides what it has to compute."""

    name: str  # "none": the steps drafted nothing
    verification: str
    temperature: float
    prompt_tokens: int  # of the longest prompt; the rows grow from there


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPoint:
    """A size of the target's pass.

    Raises:
        ValueError: a size that is none, fewer tokens than rows, or a repeat that took no time.
    """

    rows: int  # decode rows
    tokens: int  # N, over all rows
    context: int  # cached tokens of each row
    seconds: tuple[float, ...]  # a repeat each

    def __post_init__(self) -> None:
        if self.rows < 1 or self.tokens < self.rows or self.context < 0:
            raise ValueError(
                "a pass has rows >= 1, tokens >= rows and context >= 0, "
                f"got rows={self.rows}, tokens={self.tokens}, context={self.context}"
            )
        _check_repeats("seconds", self.seconds, may_be_zero=False)

    @property
    def median_s(self) -> float:
        """The median of the repeats."""
        return median(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPoint:
    """Steps of a number of decode rows that all draft to one depth; 0 is a plain step.

    Raises:
        ValueError: a size that is none, or repeats that do not belong together.
    """

    rows: int
    depth: int
    draft_s: tuple[float, ...]  # a repeat each
    overhead_s: tuple[float, ...]  # of the same steps: all but drafter and target

    def __post_init__(self) -> None:
        if self.rows < 1 or self.depth < 0:
            raise ValueError(f"a step has rows >= 1 and depth >= 0, got {self.rows} and {self.depth}")
        if len(self.draft_s) != len(self.overhead_s):
            raise ValueError(
                "draft_s and overhead_s are of the same steps, "
                f"got {len(self.draft_s)} and {len(self.overhead_s)} repeats"
            )
        _check_repeats("draft_s", self.draft_s, may_be_zero=True)
        _check_repeats("overhead_s", self.overhead_s, may_be_zero=True)

    @property
    def median_draft_s(self) -> float:
        """The median of the drafter's seconds; nothing is drafted at depth 0."""
        return median(self.draft_s) if self.depth else 0.0

    @property
    def median_overhead_s(self) -> float:
        """The median of the other seconds."""
        return median(self.overhead_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All that was measured.

    Raises:
        ValueError: nothing to look up (fewer than two sizes of a pass), or a size twice.
    """

    machine: Machine
    model: ProfiledModel
    drafter: ProfiledDrafter
    passes: tuple[PassPoint, ...]
    drafts: tuple[DraftPoint, ...]

    def __post_init__(self) -> None:
        sizes = [(p.rows, p.tokens, p.context) for p in self.passes]
        _check_distinct("a pass of rows, tokens, context", sizes)
        _check_distinct("a step of rows, depth", [(p.rows, p.depth) for p in self.drafts])
        if len({tokens for _, tokens, _ in sizes}) < 2:
            raise ValueError(
                f"a profile needs passes of 2 or more numbers of tokens, got {len(sizes)} passes"
            )
        captured = self.model.captured_tokens
        if any(size < 1 for size in captured) or any(b <= a for a, b in pairwise(captured)):
            raise ValueError(f"captured_tokens must ascend from 1 or more, got {list(captured)}")

    def curve(self, rows: int, context: int) -> tuple[list[int], list[float]]:
        """Tokens, ascending, and the median seconds of the passes of these rows and this context."""
        points = sorted((p.tokens, p.median_s) for p in self.passes if (p.rows, p.context) == (rows, context))
        return [tokens for tokens, _ in points], [seconds for _, seconds in points]

    def curves(self) -> list[tuple[int, int]]:
        """The measured pairs of rows and context, ascending."""
        return sorted({(p.rows, p.context) for p in self.passes})


def _check_repeats(name: str, seconds: Sequence[float], *, may_be_zero: bool) -> None:
    least = 0 if may_be_zero else math.ulp(0.0)
    if not seconds or not all(least <= second < math.inf for second in seconds):
        rule = ">= 0" if may_be_zero else "> 0"
        raise ValueError(f"{name} needs one or more finite numbers {rule}, got {list(seconds)}")


def _check_distinct(what: str, sizes: Sequence[tuple[int, ...]]) -> None:
    for size in sizes:
        if sizes.count(size) > 1:
            raise ValueError(f"{what} is there once, got {', '.join(map(str, size))} twice")
