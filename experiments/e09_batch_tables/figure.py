"""Speeds over the tuned table's by batch size, a panel a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e09_batch_tables.tables import CONTENDERS, TUNED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.e09_batch_tables.losses import Losses

COLOURS = ("0.45", "#0072b2", "#d55e00", "#009e73")
MARKERS = "sD^v"


def draw(found: Mapping[str, Losses], path: Path) -> None:
    """Writes the PNG file ``path``; bands are paired intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(found), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for panel, (machine, losses) in zip(panels, found.items(), strict=True):
        sizes = losses.batch_sizes
        for name, colour, marker in zip(CONTENDERS, COLOURS, MARKERS, strict=True):
            ratios = [losses.over_tuned[name, size] for size in sizes]
            width = 3 if name == TUNED else 1.6
            values = [ratio.value for ratio in ratios]
            panel.plot(sizes, values, color=colour, marker=marker, linewidth=width, label=name)
            low, high = [ratio.low for ratio in ratios], [ratio.high for ratio in ratios]
            panel.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.minorticks_off()
        panel.set_xlabel("batch size")
        panel.set_title(machine, fontsize="medium")
        panel.grid(visible=True, color="0.9", linewidth=0.6)
    panels[0].set_ylabel("modelled tokens/s over those of the tuned table")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=150)
