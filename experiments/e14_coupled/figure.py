"""Acceptance lengths and standard errors under both rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e14_coupled.cells import DEPTHS, RULES, TEMPERATURES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.e14_coupled.runs import Sampled

COLOURS = {"rejection": "#0072b2", "coupled": "#d55e00"}


def draw(found: Mapping[tuple[str, float], Sampled], path: Path) -> None:
    """Writes the PNG file ``path``: bars a rule, grouped by temperature and depth, and by temperature."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    cells = [(temperature, depth) for temperature in TEMPERATURES for depth in DEPTHS]
    for number, rule in enumerate(RULES):
        shift = 0.4 * number - 0.2
        lengths = [found[rule, temperature].lengths[depth] for temperature, depth in cells]
        bars = left.bar(
            [i + shift for i in range(len(cells))], lengths, 0.38, color=COLOURS[rule], label=rule
        )
        left.bar_label(bars, fmt="%.2f", padding=1)
        errors = [found[rule, temperature].standard_error for temperature in TEMPERATURES]
        bars = right.bar([i + shift for i in range(len(errors))], errors, 0.38, color=COLOURS[rule])
        right.bar_label(bars, fmt="%.3f", padding=1)
    left.set_xticks(range(len(cells)), [f"T = {t:g}, depth {depth}" for t, depth in cells])
    left.set_ylabel("acceptance length")
    right.set_xticks(range(len(TEMPERATURES)), [f"T = {t:g}" for t in TEMPERATURES])
    right.set_ylabel(f"standard error, depth {DEPTHS[1]} - depth {DEPTHS[0]}")
    for panel in (left, right):
        panel.margins(y=0.12)
    figure.legend(loc="outside lower center", ncols=len(RULES), frameon=False)
    figure.savefig(path, dpi=150)
