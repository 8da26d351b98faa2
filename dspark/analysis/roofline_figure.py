"""The picture of a roofline: attainable FLOP/s against intensity, with every batch size and depth on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dspark.analysis.roofline import rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from dspark.cost.roofline import Roofline

Row = dict[str, Any]


def draw_roofline(roofline: Roofline, cells: Sequence[Row], path: Path, *, title: str) -> Path:
    """``path``, which then holds the figure as PNG.

    Above, the roof with a point a batch size and depth, both axes logarithmic. Points of different
    batches lie over each other there, so below, over the same axis of intensity, each batch has a line of
    its own: left of the ridge a deeper draft takes no longer, right of it every token is paid for.

    Args:
        roofline: the cost model.
        cells: rows of ``analysis.roofline.modelled_cells``.
        path: the PNG file to write.
        title: above both panels.
    """
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    batches = sorted({cell["batch_size"] for cell in cells})
    figure = Figure(figsize=(9.5, 8.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    roof, lines = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2.4))
    colours = _colours(batches, colormaps["viridis"])
    _draw_roof(roof, roofline, cells, colours)
    _draw_lines(lines, roofline, cells, colours)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _colours(batches: Sequence[int], colour_map: Colormap) -> dict[int, Any]:
    places = np.linspace(0.0, 0.92, num=len(batches))  # the end of the map is too pale on white
    return {batch: colour_map(place) for batch, place in zip(batches, places, strict=True)}


def _draw_roof(axes: Axes, roofline: Roofline, cells: Sequence[Row], colours: Mapping[int, Any]) -> None:
    """Roof, ridge and points; plain decoding as large rings."""
    points = np.array([cell["modelled_flops_per_byte"] for cell in cells])
    low, high = min(points.min(), roofline.ridge) / 2, max(points.max(), roofline.ridge) * 2.5
    reach = np.array([low, roofline.ridge, high])
    axes.plot(
        reach, np.minimum(reach * roofline.bandwidth, roofline.peak_flops) / 1e12, color="0.25", zorder=1
    )
    axes.axvline(roofline.ridge, color="0.6", linestyle="--", linewidth=1, zorder=0)
    for batch, colour in colours.items():
        own = [cell for cell in cells if cell["batch_size"] == batch]
        x = [cell["modelled_flops_per_byte"] for cell in own]
        y = [cell["modelled_flops_per_s"] / 1e12 for cell in own]
        axes.scatter(x, y, s=16, color=colour, zorder=3, label=f"{batch}")
        plain = [k for k, cell in enumerate(own) if cell["depth"] == 0]
        rings = {"s": 95, "facecolors": "none", "edgecolors": [colour], "linewidths": 1.8, "zorder": 4}
        axes.scatter([x[k] for k in plain], [y[k] for k in plain], **rings)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlim(low, high)
    axes.set_ylim(top=roofline.peak_flops / 1e12 * 2)
    axes.set_ylabel("modelled TFLOP/s")
    axes.annotate(
        rate(roofline.peak_flops, "FLOP/s"),
        (high, roofline.peak_flops / 1e12),
        xytext=(-6, 5),
        textcoords="offset points",
        ha="right",
    )
    axes.annotate(
        f"ridge: {roofline.ridge:.4g} FLOP a byte",
        (roofline.ridge, 0.97),
        xycoords=axes.get_xaxis_transform(),
        xytext=(-6, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        color="0.35",
    )
    middle = np.sqrt(low * roofline.ridge)
    axes.annotate(
        rate(roofline.bandwidth, "B/s"),
        (middle, middle * roofline.bandwidth / 1e12),
        xytext=(-8, 6),
        textcoords="offset points",
        ha="right",
    )
    legend = axes.legend(title="batch (ring: depth 0)", loc="lower right", ncols=2, fontsize="small")
    legend.get_frame().set(facecolor="white", edgecolor="none", alpha=1)
    axes.grid(visible=True, which="major", color="0.9", linewidth=0.6)


def _draw_lines(axes: Axes, roofline: Roofline, cells: Sequence[Row], colours: Mapping[int, Any]) -> None:
    """A line a batch, its depths along the intensity; filled where the pass is memory bound."""
    for place, (batch, colour) in enumerate(colours.items()):
        own = sorted((cell for cell in cells if cell["batch_size"] == batch), key=lambda cell: cell["depth"])
        x = [cell["modelled_flops_per_byte"] for cell in own]
        axes.plot(x, [place] * len(x), color=colour, linewidth=1, zorder=1)
        axes.scatter(
            x,
            [place] * len(x),
            s=[95 if cell["depth"] == 0 else 30 for cell in own],
            facecolors=[colour if cell["modelled_bound"] == "memory" else "white" for cell in own],
            edgecolors=[colour],
            zorder=2,
        )
        axes.annotate(
            f"d={own[-1]['depth']}",
            (x[-1], place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize="x-small",
            color="0.35",
        )
    axes.axvline(roofline.ridge, color="0.6", linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(colours)), [str(batch) for batch in colours])
    axes.set_ylim(len(colours) - 0.4, -0.6)
    axes.set_ylabel("batch size")
    axes.set_xlabel(
        "FLOP a byte of the target's pass (filled: memory bound, hollow: compute bound; large: depth 0)"
    )
    axes.grid(visible=True, axis="x", which="major", color="0.9", linewidth=0.6)
