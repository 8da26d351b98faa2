"""What `dspark replay` prints: a table a batch size, and where headroom is undefined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.analysis.replay.headroom import LEAST_ROOM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table


def batch_table(found: Mapping[str, Any], batch_size: int) -> Table:
    """The rows of a batch size; the best fixed depth and whatever is faster than it in bold.

    Args:
        found: what ``replay.json`` holds.
        batch_size: one of its batch sizes.
    """
    from rich.table import Table

    sure = f"{100 * found['confidence']:g} %"
    rows = [row for row in found["rows"] if row["batch_size"] == batch_size]
    num_requests, machine = rows[0]["num_requests"], rows[0]["cost_model"]
    table = Table(
        title=f"batch {batch_size}: {num_requests} requests, seconds modelled on {machine}",
        title_justify="left",
    )
    table.add_column("policy")
    for heading in ("acceptance\nlength", "acceptance\nrate", "verified\na row-step"):
        table.add_column(heading, justify="right")
    for heading in ("tokens/s", "to plain", f"to best fixed\n{sure} interval"):
        table.add_column(f"modelled\n{heading}", justify="right")
    table.add_column(f"headroom captured\n{sure} interval", justify="right")
    for row in rows:
        to_best = row["modelled_ratio_to_best_fixed"]
        table.add_row(
            row["policy"],
            _optional(row["acceptance_length"], "{:.2f}"),
            _optional(row["acceptance_rate"], "{:.1%}"),
            f"{row['verified_per_row_step']:.2f}",
            f"{row['modelled_tokens_per_s']:,.1f}",
            f"{row['modelled_ratio_to_plain_end_to_end']:.2f}×",
            _with_interval(to_best, row["modelled_ratio_to_best_fixed_interval"], "{:.3f}", "×"),
            _with_interval(row["modelled_headroom"], row["modelled_headroom_interval"], "{:z.2f}"),
            style="bold" if row["is_best_fixed"] or to_best > 1 else None,
        )
    return table


def undefined(found: Mapping[str, Any]) -> list[str]:
    """A line for every batch size at which headroom is undefined."""
    lines = []
    for batch in found["batches"]:
        own = [row for row in found["rows"] if row["batch_size"] == batch["batch_size"]]
        if all(row["modelled_headroom"] is None for row in own):
            low, high = batch["modelled_room_interval"]
            lines.append(
                f"batch {batch['batch_size']}: headroom is undefined, because the oracle's lead over "
                f"{batch['best_fixed']}, {batch['modelled_room']:.2%} ({low:.2%} to {high:.2%}), is not "
                f"surely above {LEAST_ROOM:.1%}"
            )
    return lines


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _with_interval(value: float | None, interval: list[float] | None, form: str, unit: str = "") -> str:
    if value is None or interval is None:
        return "-"
    low, high = (form.format(end) for end in interval)
    return f"{form.format(value)}{unit} ({low} to {high})"
