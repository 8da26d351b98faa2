"""Modelled against measured tokens/s, a point a policy and batch size, with the band; a PNG file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def draw(rows: Sequence[dict[str, Any]], path: Path, *, band: float, title: str) -> Path:
    """``path``, which then shows the points around the diagonal and ``band`` on both sides of it."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [row for row in rows if row["error"] is not None]
    figure = Figure(figsize=(6.4, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(title, fontsize="medium")
    values = [
        row[name]
        for row in drawn
        for name in ("measured_decode_tokens_per_s", "modelled_decode_tokens_per_s")
    ]
    ends = (0.8 * min(values, default=1.0), 1.25 * max(values, default=10.0))
    axes.fill_between(
        ends,
        [end * (1 - band) for end in ends],
        [end * (1 + band) for end in ends],
        color="0.85",
        label=f"within {band:.0%}",
    )
    axes.plot(ends, ends, color="0.4", linewidth=0.8)
    policies = list(dict.fromkeys(row["policy"] for row in drawn))
    sizes = list(dict.fromkeys(row["batch_size"] for row in drawn))
    for number, policy in enumerate(policies):
        for row in (row for row in drawn if row["policy"] == policy):
            axes.plot(
                row["measured_decode_tokens_per_s"],
                row["modelled_decode_tokens_per_s"],
                MARKERS[sizes.index(row["batch_size"]) % len(MARKERS)],
                color=colormaps["tab10"](number % 10),
                markersize=5,
                label=policy if row["batch_size"] == sizes[0] else None,
            )
    for size in sizes[1:]:
        marker = MARKERS[sizes.index(size) % len(MARKERS)]
        axes.plot([], [], marker, color="0.4", markersize=5, label=f"batch {size}")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("measured decode tokens/s (wall)")
    axes.set_ylabel("modelled decode tokens/s (replay, profiled table)")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="x-small", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
