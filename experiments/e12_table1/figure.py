"""Ours against the paper's, a dot a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e12_table1.cells import published

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.e12_table1.cells import Cell

COLOURS = {"Eagle3": "#009e73", "DFlash": "#0072b2", "DSpark": "#d55e00"}
MARKERS = {"Qwen3-4B": "o", "Qwen3-8B": "s", "Qwen3-14B": "^"}
DEEPEST = 8


def draw(ours: Mapping[Cell, float], path: Path) -> None:
    """Writes the PNG file ``path``: lengths of ours by the paper's, coloured by drafter, shaped by target."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 5), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    paper = published()
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for cell, length in ours.items():
        groups.setdefault((cell.target, cell.drafter), []).append((paper[cell], length))
    for (target, drafter), points in groups.items():
        label = f"{target}, {drafter}"
        panel.scatter(
            *zip(*points, strict=True), color=COLOURS[drafter], marker=MARKERS[target], label=label, s=22
        )
    panel.plot((1, DEEPEST), (1, DEEPEST), color="0.5", linewidth=0.8)
    panel.set_xlabel("the paper's accepted length")
    panel.set_ylabel("ours")
    panel.legend(frameon=False, fontsize="small")
    panel.grid(visible=True, color="0.9", linewidth=0.6)
    figure.savefig(path, dpi=150)
