"""What changes with the threshold, a line a domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.e06_threshold.sweep import Point

COLOURS = {"math": "#2171b5", "code": "#238b45", "chat": "#d94801"}


def draw(found: Mapping[str, Sequence[Point]], ends: Mapping[str, tuple[float, float]], path: Path) -> None:
    """Writes the PNG file ``path``.

    Args:
        found: by domain, a point a threshold in their order.
        ends: the paper's acceptance rates in % at the first and the last threshold, by domain.
        path: of the file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3)
    for domain, points in found.items():
        colour = COLOURS[domain]
        rated = [(point.threshold, 100 * point.rate) for point in points if point.rate is not None]
        if rated:
            panels[0].plot(*zip(*rated, strict=True), "o-", color=colour, label=domain)
        thresholds = [point.threshold for point in points]
        panels[0].plot((thresholds[0], thresholds[-1]), ends[domain], "x", color=colour)
        panels[1].plot(thresholds, [point.verified for point in points], "o-", color=colour)
        panels[2].plot(thresholds, [point.length for point in points], "o-", color=colour)
    labels = ("accepted of verified tokens, %", "verified tokens a round", "tokens a round")
    for panel, label in zip(panels, labels, strict=True):
        panel.set_xlabel("threshold")
        panel.set_ylabel(label)
        panel.grid(visible=True, color="0.9", linewidth=0.6)
    panels[0].set_ylim(0, 102)
    panels[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
