"""Verified length by load, and the frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e08_load import live as live_runs
from experiments.e08_load.frontier import frontier

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.e08_load.live import Live
    from experiments.e08_load.modelled import Curves

COLOURS = {
    "fixed 0": "0.5",
    "fixed 1": "#0072b2",
    "fixed 5": "#56b4e9",
    "prefix_scheduler": "#d55e00",
    "stale_scheduler": "#e69f00",
}
MARKERS = {
    "fixed 0": "s",
    "fixed 1": "o",
    "fixed 5": "^",
    "prefix_scheduler": "D",
    "stale_scheduler": "v",
}


def draw_modelled(curves: Curves, path: Path) -> None:
    """Writes the PNG file ``path``: verified tokens by concurrency, and throughput by the speed of a user."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, points in curves.items():
        style = {"color": COLOURS[name], "marker": MARKERS[name], "label": name}
        by_load = sorted((point.mean_concurrency, point.mean_verified) for point in points)
        left.plot(*zip(*by_load, strict=True), **style)
        right.plot(*zip(*sorted(frontier(points)), strict=True), **style)
    left.set_xscale("log")
    left.set_xlabel("mean concurrency, rows")
    left.set_ylabel("drafts verified a row-step")
    right.set_xlabel("modelled tokens/s of one user")
    right.set_ylabel("modelled tokens/s of all")
    for panel in (left, right):
        panel.set_ylim(bottom=0)
        panel.grid(visible=True, color="0.9", linewidth=0.6)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=150)


def draw_live(live: Live, path: Path) -> None:
    """Writes the PNG file ``path``: verified tokens and tokens/s by batch size, as measured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2)
    for panel, values in zip(panels, (live.verified, live.tokens_per_s), strict=True):
        for name in live_runs.POLICIES:
            points = [(size, values[name, size]) for size in live.batch_sizes if (name, size) in values]
            if points:
                style = {"color": COLOURS[name], "marker": MARKERS[name], "label": name}
                panel.plot(*zip(*points, strict=True), **style)
        panel.set_xscale("log", base=2)
        panel.set_xticks(live.batch_sizes, [str(size) for size in live.batch_sizes])
        panel.minorticks_off()
        panel.set_xlabel("batch size")
        panel.set_ylim(bottom=0)
        panel.grid(visible=True, color="0.9", linewidth=0.6)
    panels[0].set_ylabel("drafts verified a row-step")
    panels[1].set_ylabel("decode tokens/s")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=150)
