"""What a run leaves behind: two tables on the console, and ``peers.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from experiments.bench.measure import Measurement
    from experiments.peers.comparison import Comparison
    from experiments.peers.sides import Family

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A side that was asked for and could not run here."""

    side: str
    because: str
    command: str  # that makes it run


def report(
    measurements: Sequence[Measurement],
    families: Mapping[str, Family],
    comparisons: Sequence[Comparison],
    left_out: Sequence[LeftOut],
    *,
    machine: Mapping[str, Any],
    settings: Mapping[str, Any],
    workers: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The content of ``peers.json``: seconds in ``_s``, speeds in tokens a second.

    Args:
        measurements: of all sides.
        families: by the side's name.
        comparisons: the ratios.
        left_out: sides that did not run.
        machine: what the figures belong to.
        settings: what was asked for.
        workers: what each worker says of itself, by its side's name.
    """
    return {
        "schema": SCHEMA,
        "machine": dict(machine),
        "settings": dict(settings),
        "workers": {name: dict(ready) for name, ready in workers.items()},
        "rows": [
            asdict(m)
            | {
                "family": str(families[m.side]),
                "decode_tokens_per_s": m.decode_tokens_per_s,
                "tokens_per_s": m.tokens_per_s,
            }
            for m in measurements
        ],
        "ratios": [
            asdict(c) | {"passed": c.passed, "reached_ambition": c.reached_ambition} for c in comparisons
        ],
        "left_out": [asdict(side) for side in left_out],
    }


def show(
    console: Console, measurements: Sequence[Measurement], comparisons: Sequence[Comparison], *, title: str
) -> None:
    """Prints the speeds and the ratios."""
    console.print(_speeds(measurements, title))
    if comparisons:
        console.print(_ratios(comparisons))


def show_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    """Prints one line for each reason why sides are missing."""
    for because, command in dict.fromkeys((side.because, side.command) for side in left_out):
        names = ", ".join(side.side for side in left_out if side.because == because)
        console.print(f"left out: {names}: {because}; to have them: {command}")


def _speeds(measurements: Sequence[Measurement], title: str) -> Table:
    table = Table(title=title)
    for name in ("side", "batch", "decode tokens/s", "end to end tokens/s", "rows as plain"):
        table.add_column(name, justify="left" if name == "side" else "right")
    for m, following in zip(measurements, [*measurements[1:], None], strict=True):
        table.add_row(
            m.side,
            str(m.batch_size),
            f"{m.decode_tokens_per_s:.1f}",
            f"{m.tokens_per_s:.1f}",
            f"{m.same_rows}/{m.batch_size}",
            end_section=following is not None and following.batch_size != m.batch_size,
        )
    return table


def _ratios(comparisons: Sequence[Comparison]) -> Table:
    table = Table(title="best dspark side over the best side of each, ratios of medians of one run")
    for name in ("against", "measure", "batch", "ours", "theirs", "ratio", "bar", "reached"):
        table.add_column(name, justify="right" if name in ("batch", "ratio", "bar") else "left")
    for c in comparisons:
        bar = f">= {c.bar:g}" + (f" ({c.ambition:g})" if c.ambition is not None else "")
        reached = "yes" if c.passed else "NO"
        if c.reached_ambition:
            reached = "yes, and the ambition"
        value = f"{c.value:.3f}"
        table.add_row(c.family, c.measure, str(c.batch_size), c.ours, c.theirs, value, bar, reached)
    return table
