"""Tables for people: the rows of summary.json, laid out with rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.metrics.time_fields import TIME_FIELDS, one_clock, time_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.table import Table


def _number(digits: int) -> Callable[[Any], str]:
    return lambda value: "-" if value is None else f"{value:,.{digits}f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.{1 if value >= 10 else 2}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}×"


COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("batch", "batch_size", str),
    ("policy", "policy", str),
    ("decode\ntokens/s", "decode_tokens_per_s", _number(1)),
    ("to plain", "ratio_to_plain", _times),
    ("tokens/s\nend to end", "tokens_per_s", _number(1)),
    ("acceptance\nlength", "acceptance_length", _number(2)),
    ("acceptance\nrate", "acceptance_rate", _percent),
    ("drafted", "drafted_tokens", _number(0)),
    ("passes", "target_passes", _number(0)),
    ("output\ntokens", "output_tokens", _number(0)),
    ("wall s", "wall_s", _seconds),
)
"""Heading, summary field and format of each column; columns without any value are left out."""


def summary_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of the summary rows by batch size, the fastest policy of each in bold.

    Raises:
        ValueError: some rows are of modelled runs and some are not.
    """
    from rich.table import Table

    is_modelled = one_clock(rows)
    columns = [
        column for column in columns_of(is_modelled) if any(row.get(column[1]) is not None for row in rows)
    ]
    first = rows[0]
    machine = f"; seconds modelled on {first['cost_model']}" if is_modelled else ""
    table = Table(
        title=f"{first['workload']}, {first['num_requests']} requests; drafter {first['drafter']}, "
        f"verification {first['verification']}, numerics {first['numerics']}{machine}",
        title_justify="left",
    )
    for heading, field, _ in columns:
        table.add_column(heading, justify="left" if field == "policy" else "right")
    ordered = sorted(rows, key=lambda row: row["batch_size"])
    for i, row in enumerate(ordered):
        last_of_batch = i + 1 == len(ordered) or ordered[i + 1]["batch_size"] != row["batch_size"]
        table.add_row(
            *(form(row.get(field)) for _, field, form in columns),
            style="bold" if is_fastest(row, rows) else None,
            end_section=last_of_batch,
        )
    return table


def columns_of(is_modelled: bool) -> list[tuple[str, str, Callable[[Any], str]]]:
    """``COLUMNS`` as they are called in runs by that clock."""
    return [
        (
            f"modelled\n{heading.removeprefix('wall ')}" if is_modelled and field in TIME_FIELDS else heading,
            time_field(field, is_modelled=is_modelled),
            form,
        )
        for heading, field, form in COLUMNS
    ]


def is_fastest(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """True for the fastest of two or more policies at the row's batch size."""
    rivals = [_speed(other) for other in rows if other["batch_size"] == row["batch_size"]]
    return len(rivals) > 1 and _speed(row) == max(rivals)


def _speed(row: Mapping[str, Any]) -> float:
    return row.get("decode_tokens_per_s") or row.get("modelled_decode_tokens_per_s") or 0.0
