"""Speed-up against batch size, a panel a set of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e10_performance_or_illusion.published import BATCH_SIZES, SPEEDUPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.e10_performance_or_illusion.published import Rule

COLOURS: dict[Rule, str] = {
    "fixed 1": "#9ecae1",
    "fixed 3": "#4292c6",
    "fixed 5": "#084594",
    "oracle": "#d94801",
    "combined oracle": "#8c2d04",
}


def draw(found: Mapping[str, Mapping[Rule, Sequence[float]]], batch_sizes: Sequence[int], path: Path) -> None:
    """Writes the PNG file ``path``: lines are ours, crosses the published numbers."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(found) + 1, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for panel, (prompts, rules) in zip(panels, found.items(), strict=True):
        for rule, values in rules.items():
            panel.plot(batch_sizes, values, color=COLOURS[rule], label=rule)
            panel.plot(BATCH_SIZES, SPEEDUPS[prompts][rule], "x", color=COLOURS[rule])
        panel.axhline(1, color="0.5", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.set_xticks(BATCH_SIZES, [str(size) for size in BATCH_SIZES])
        panel.minorticks_off()
        panel.set_xlabel("batch size")
        panel.set_title(prompts, fontsize="medium")
        panel.grid(visible=True, color="0.9", linewidth=0.6)
    panels[0].set_ylabel("modelled speed-up over plain decoding")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(COLOURS), frameon=False)
    figure.savefig(path, dpi=150)
