"""The ratios and their bars."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from experiments.bench.measure import Measurement

PLAIN, DEPTH_0, NGRAM = "engine, no drafter", "engine, depth 0", "engine, n-gram 4"
BARE, TRANSFORMERS = "bare forward", "transformers generate"

DEPTH_0_TAX_BAR = 0.02
BARE_BAR = 0.93
TRANSFORMERS_BARS = {1: 1.0, 4: 1.2, 16: 1.2}


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A value and the bar it is held against."""

    name: str
    batch_size: int
    value: float
    bar: float
    upper: bool = False  # the bar is a ceiling

    @property
    def passed(self) -> bool:
        """True if the bar is reached."""
        return self.value <= self.bar if self.upper else self.value >= self.bar


def ratios(measurements: list[Measurement]) -> list[Ratio]:
    """All ratios that the measured sides allow, by batch size.

    The tax and the share of the bare forward are medians over repeats of ratios within a repeat:
    the two sides ran next to each other, so the machine's drift cancels.
    """
    by_side = {(m.side, m.batch_size): m for m in measurements}
    rows = []
    for batch_size in sorted({m.batch_size for m in measurements}):
        plain, depth_0, ngram, bare, other = (
            by_side[side, batch_size] for side in (PLAIN, DEPTH_0, NGRAM, BARE, TRANSFORMERS)
        )
        rows += [
            Ratio(
                name="depth-0 tax (time with drafter and depth 0 / without, - 1)",
                batch_size=batch_size,
                value=_paired(depth_0, plain) - 1,
                bar=DEPTH_0_TAX_BAR,
                upper=True,
            ),
            Ratio(
                name="engine / bare forward, decode",
                batch_size=batch_size,
                value=1 / _paired(plain, bare),
                bar=BARE_BAR,
            ),
            Ratio(
                name="best engine / transformers generate, decode",
                batch_size=batch_size,
                value=max(plain.decode_tokens_per_s, ngram.decode_tokens_per_s) / other.decode_tokens_per_s,
                bar=TRANSFORMERS_BARS.get(batch_size, 1.2),
            ),
        ]
    return rows


def _paired(a: Measurement, b: Measurement) -> float:
    """Median over repeats of a's decode time over b's."""
    times = zip(a.long_s, a.short_s, b.long_s, b.short_s, strict=True)
    return median((al - as_) / (bl - bs) for al, as_, bl, bs in times)
