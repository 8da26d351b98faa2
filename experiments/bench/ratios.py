"""The ratios and their bars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.bench.measure import Measurement
    from experiments.bench.stepwise import StepTimes

PLAIN, NGRAM, TRANSFORMERS = "engine, no drafter", "engine, n-gram 4", "transformers generate"

DEPTH_0_TAX_BAR = 0.01
BARE_BAR = 0.95
TRANSFORMERS_BAR, TRANSFORMERS_END_TO_END_BAR = 1.5, 1.2


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A value and the bar it is held against."""

    name: str
    batch_size: int
    value: float
    bar: float
    upper: bool = False  # the bar is a ceiling
    ambition: bool = False  # reported, and no failure where it is missed

    @property
    def passed(self) -> bool:
        """True if the bar is reached."""
        return self.value <= self.bar if self.upper else self.value >= self.bar


def step_ratios(times: StepTimes) -> list[Ratio]:
    """What a drafter costs that never drafts, and what the engine costs beside its passes."""
    return [
        Ratio(
            name="depth-0 tax (time with drafter and depth 0 / without, - 1)",
            batch_size=times.batch_size,
            value=times.ratio("engine, depth 0", "engine") - 1,
            bar=DEPTH_0_TAX_BAR,
            upper=True,
        ),
        Ratio(
            name="engine / bare forward, decode",
            batch_size=times.batch_size,
            value=times.ratio("bare forward", "engine"),
            bar=BARE_BAR,
        ),
    ]


def ratios(measurements: list[Measurement]) -> list[Ratio]:
    """The best of our sides over transformers, by batch size."""
    by_side = {(m.side, m.batch_size): m for m in measurements}
    rows = []
    for batch_size in sorted({m.batch_size for m in measurements}):
        plain, ngram, other = (by_side[side, batch_size] for side in (PLAIN, NGRAM, TRANSFORMERS))
        rows += [
            Ratio(
                name="best engine / transformers generate, decode",
                batch_size=batch_size,
                value=max(plain.decode_tokens_per_s, ngram.decode_tokens_per_s) / other.decode_tokens_per_s,
                bar=TRANSFORMERS_BAR,
            ),
            Ratio(
                name="best engine / transformers generate, end to end",
                batch_size=batch_size,
                value=max(plain.tokens_per_s, ngram.tokens_per_s) / other.tokens_per_s,
                bar=TRANSFORMERS_END_TO_END_BAR,
            ),
        ]
    return rows
