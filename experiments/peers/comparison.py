"""The best of ours over the best of theirs, and the bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.peers.sides import Family

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.bench.measure import Measurement

DECODE, END_TO_END = "decode", "end to end"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What the ratio to a family is held against, at every batch size."""

    family: Family
    measure: str
    least: float
    ambition: float | None = None


BARS = (
    Bar(family=Family.VLLM_COMPILED, measure=DECODE, least=1.1, ambition=1.3),
    Bar(family=Family.VLLM_COMPILED, measure=END_TO_END, least=1.0),
    Bar(family=Family.TRANSFORMERS, measure=DECODE, least=1.5),
    Bar(family=Family.TRANSFORMERS, measure=END_TO_END, least=1.2),
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Tokens/s of our best side over those of a family's best side, at one batch size."""

    family: str
    measure: str
    batch_size: int
    ours: str  # the side that is best
    theirs: str
    value: float
    bar: float
    ambition: float | None

    @property
    def passed(self) -> bool:
        """True if the bar is reached."""
        return self.value >= self.bar

    @property
    def reached_ambition(self) -> bool | None:
        """True if the ambition is reached; None where there is none."""
        return None if self.ambition is None else self.value >= self.ambition


def tokens_per_s(measurement: Measurement, measure: str) -> float:
    """The figure that ``measure`` names."""
    return measurement.decode_tokens_per_s if measure == DECODE else measurement.tokens_per_s


def compare(measurements: Sequence[Measurement], families: Mapping[str, Family]) -> list[Comparison]:
    """A row for every bar and batch size of which both families were measured.

    Each family is stood for by its best side at that measure and batch size, with or without
    speculation. Ratios are of medians over the interleaved repeats of one run.

    Args:
        measurements: of all sides.
        families: by the side's name.
    """
    rows = []
    for batch_size in sorted({m.batch_size for m in measurements}):
        for bar in BARS:
            best = {}
            for family in (Family.DSPARK, bar.family):
                members = [
                    m for m in measurements if m.batch_size == batch_size and families[m.side] is family
                ]
                if members:
                    best[family] = max(members, key=lambda m: tokens_per_s(m, bar.measure))
            if len(best) < 2:
                continue
            ours, theirs = best[Family.DSPARK], best[bar.family]
            rows.append(
                Comparison(
                    family=bar.family,
                    measure=bar.measure,
                    batch_size=batch_size,
                    ours=ours.side,
                    theirs=theirs.side,
                    value=tokens_per_s(ours, bar.measure) / tokens_per_s(theirs, bar.measure),
                    bar=bar.least,
                    ambition=bar.ambition,
                )
            )
    return rows
