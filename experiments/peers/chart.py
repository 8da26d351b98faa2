"""Bars of tokens/s by batch size, a colour a side; a PNG file, and no display is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.peers.comparison import DECODE, END_TO_END, tokens_per_s
from experiments.peers.sides import Family

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from experiments.bench.measure import Measurement

COLOURS = {
    Family.DSPARK: ("#08306b", "#2171b5", "#6baed6"),
    Family.TRANSFORMERS: ("#525252", "#969696", "#cccccc"),
    Family.VLLM_EAGER: ("#fdd0a2",),
    Family.VLLM_COMPILED: ("#d94801", "#fd8d3c"),
}
"""Shades of one colour a family."""


def draw_bars(
    measurements: Sequence[Measurement], families: Mapping[str, Family], path: Path, *, title: str
) -> Path:
    """``path``, which then holds two panels: decode, and end to end with the prefill.

    A side that cannot do a batch size has no bar there.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    panels = figure.subplots(1, 2)
    colours = side_colours(families)
    for panel, measure in zip(panels, (DECODE, END_TO_END), strict=True):
        _draw(panel, measurements, colours, measure)
        panel.set_title(measure, fontsize="medium")
    panels[0].set_ylabel("output tokens/s")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def side_colours(families: Mapping[str, Family]) -> dict[str, str]:
    """A colour for every side, by its name."""
    colours, used = {}, dict.fromkeys(Family, 0)
    for side, family in families.items():
        shades = COLOURS[family]
        colours[side] = shades[used[family] % len(shades)]
        used[family] += 1
    return colours


def _draw(panel: Axes, measurements: Sequence[Measurement], colours: Mapping[str, str], measure: str) -> None:
    sizes = sorted({m.batch_size for m in measurements})
    width = 0.85 / len(colours)
    for i, (side, colour) in enumerate(colours.items()):
        points = [
            (sizes.index(m.batch_size), tokens_per_s(m, measure)) for m in measurements if m.side == side
        ]
        places = [group + (i - (len(colours) - 1) / 2) * width for group, _ in points]
        bars = panel.bar(places, [value for _, value in points], width, color=colour, label=side)
        panel.bar_label(bars, fmt="%.0f", fontsize=6, padding=1)
    panel.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    panel.set_xlabel("batch size")
    panel.set_axisbelow(True)
    panel.grid(visible=True, axis="y", color="0.88", linewidth=0.6)
