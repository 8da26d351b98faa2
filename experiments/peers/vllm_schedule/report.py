"""What a run leaves behind: a table on the console, and ``vllm_schedule.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.bench.measure import Measurement

SCHEMA = 1
PLAIN, TUNED = "no speculation", "tuned table"

Modelled = dict[tuple[str, int], float | None]
"""Decode tokens/s that replay gives, by side and batch size."""


def rows_of(
    sides: Sequence[str],
    batch_sizes: Sequence[int],
    measurements: Sequence[Measurement],
    modelled: Modelled,
) -> list[dict[str, Any]]:
    """A row a side and batch size: vLLM's wall, replay's modelled seconds, and the errors of the latter.

    ``error`` is modelled / measured - 1. The profiled engine is dspark's and the measured one vLLM's, so
    most of it is the two engines' difference; ``error_over_plain`` is that of the ratio to no speculation,
    which is what a schedule is chosen by. None where a side was not measured.
    """
    speeds = {(m.side, m.batch_size): m.decode_tokens_per_s for m in measurements}
    whole = {(m.side, m.batch_size): m for m in measurements}
    rows = []
    for batch_size in batch_sizes:
        for side in sides:
            at, plain = (side, batch_size), (PLAIN, batch_size)
            measured_ratio = _over(speeds.get(at), speeds.get(plain))
            modelled_ratio = _over(modelled[at], modelled[plain])
            timed = whole.get(at)
            rows.append(
                {
                    "side": side,
                    "batch_size": batch_size,
                    "measured_decode_tokens_per_s": speeds.get(at),
                    "measured_tokens_per_s": None if timed is None else timed.tokens_per_s,
                    "long_s": None if timed is None else timed.long_s,
                    "short_s": None if timed is None else timed.short_s,
                    "same_rows": None if timed is None else timed.same_rows,
                    "modelled_decode_tokens_per_s": modelled[at],
                    "error": _error(modelled[at], speeds.get(at)),
                    "measured_over_plain": measured_ratio,
                    "modelled_over_plain": modelled_ratio,
                    "error_over_plain": _error(modelled_ratio, measured_ratio),
                }
            )
    return rows


def table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """The rows as they are printed; measured and modelled in columns of their own."""
    found = Table(title=title)
    columns = {
        "measured": ("measured_decode_tokens_per_s", ".1f"),
        "modelled": ("modelled_decode_tokens_per_s", ".1f"),
        "error": ("error", "+.1%"),
        "measured to plain": ("measured_over_plain", ".3f"),
        "modelled to plain": ("modelled_over_plain", ".3f"),
        "its error": ("error_over_plain", "+.1%"),
        "rows as plain": ("same_rows", "d"),
    }
    for name in ("batch", "side", *columns):
        found.add_column(name, justify="left" if name == "side" else "right")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        values = ((row[field], form) for field, form in columns.values())
        found.add_row(
            str(row["batch_size"]),
            row["side"],
            *("-" if value is None else format(value, form) for value, form in values),
            end_section=following is not None and following["batch_size"] != row["batch_size"],
        )
    return found


def _over(value: float | None, plain: float | None) -> float | None:
    return None if value is None or plain is None else value / plain


def _error(modelled: float | None, measured: float | None) -> float | None:
    return None if modelled is None or measured is None else modelled / measured - 1
