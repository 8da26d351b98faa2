"""Curves of theorem 3.8."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
COST_RATIO = 0.05
DEEPEST = 24


def draw(path: Path) -> None:
    """Writes the PNG file ``path``: speed-up by depth, a line an α, a dot at the best depth."""
    import torch
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from dspark.policies.leviathan_law import best_depth, speedup

    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    depths = torch.arange(DEEPEST + 1)
    for number, alpha in enumerate(ALPHAS):
        colour = colormaps["viridis"](0.85 * number / (len(ALPHAS) - 1))
        gains = speedup(alpha, depths, COST_RATIO)
        best = int(best_depth(alpha, COST_RATIO, DEEPEST))
        panel.plot(depths.tolist(), gains.tolist(), color=colour, label=f"α = {alpha:g}")
        panel.plot([best], [float(gains[best])], "o", color=colour)
    panel.axhline(1, color="0.5", linewidth=0.8)
    panel.set_xlabel("depth γ")
    panel.set_ylabel("speed-up over plain decoding")
    panel.set_title(f"c = {COST_RATIO:g}", fontsize="medium")
    panel.legend(frameon=False)
    panel.grid(visible=True, color="0.9", linewidth=0.6)
    figure.savefig(path, dpi=150)
