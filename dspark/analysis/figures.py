"""Figures from summary rows, as PNG files; no display is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.metrics.time_fields import one_clock, time_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

PANELS = (("decode_tokens_per_s", "decode"), ("tokens_per_s", "end to end, prefill included"))
"""Summary fields with a panel each, and the panel's title."""

BATCH_SIZE = "batch_size"

_MARKERS = "oD^vPX*<"


def draw_throughput(
    rows: Sequence[Mapping[str, Any]],
    path: Path,
    *,
    title: str,
    baseline: str | None = None,
    x: str = BATCH_SIZE,
) -> Path:
    """``path``, which then holds a figure of tokens/s against batch size, a line a policy.

    The baseline is drawn thick and grey, and the area below it shaded, so that a policy which loses
    against it is seen at once.

    Args:
        rows: summary rows.
        path: the PNG file to write.
        title: above both panels.
        baseline: the policy to compare with.
        x: a field of the rows that holds a number, to draw against in place of the batch size.

    Raises:
        ValueError: some rows are of modelled runs and some are not.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    axes = figure.subplots(1, len(PANELS))
    is_modelled = one_clock(rows)
    for panel, (key, name) in zip(axes, PANELS, strict=True):
        _draw_panel(panel, rows, time_field(key, is_modelled=is_modelled), baseline, x)
        panel.set_title(name, fontsize="medium")
    axes[0].set_ylabel(_speed(rows) if is_modelled else "output tokens/s")
    handles, labels = axes[0].get_legend_handles_labels()
    if not handles:
        handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels) or 1), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _speed(rows: Sequence[Mapping[str, Any]]) -> str:
    """What modelled rows count, with the machine it holds for."""
    machines = dict.fromkeys(row["cost_model"] for row in rows)
    return f"modelled tokens/s\non {', '.join(machines)}"


def _draw_panel(
    panel: Axes, rows: Sequence[Mapping[str, Any]], key: str, baseline: str | None, x: str
) -> None:
    """One line a policy; cells where the measure is undefined are left out."""
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for i, policy in enumerate(sorted(policies, key=lambda name: name != baseline)):
        points = sorted(
            (row[x], row[key]) for row in rows if row["policy"] == policy and row[key] is not None
        )
        if not points:
            continue
        sizes, values = zip(*points, strict=True)
        if policy == baseline:
            panel.plot(sizes, values, color="0.45", linewidth=3, marker="s", label=f"{policy} (plain)")
            panel.fill_between(sizes, values, color="0.93", zorder=0)
        else:
            panel.plot(sizes, values, marker=_MARKERS[i % len(_MARKERS)], linewidth=1.6, label=policy)
    if x == BATCH_SIZE:
        sizes = sorted({row[x] for row in rows})
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.minorticks_off()
    panel.set_ylim(bottom=0)
    panel.set_xlabel("batch size (rows that decode together)" if x == BATCH_SIZE else x)
    panel.grid(visible=True, color="0.88", linewidth=0.6)
