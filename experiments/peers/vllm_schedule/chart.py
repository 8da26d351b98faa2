"""Tokens/s over plain decoding by batch size, measured and modelled in panels of their own; a PNG file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.peers.vllm_schedule.report import PLAIN, TUNED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SHADES = ("#9ecae1", "#6baed6", "#3182bd", "#08519c", "#08306b")


def draw(rows: Sequence[Mapping[str, Any]], path: Path, *, title: str) -> Path:
    """``path``, which then shows what each side gains over no speculation; a side that died has gaps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize="medium")
    panels = figure.subplots(1, 2, sharey=True)
    sides = list(dict.fromkeys(row["side"] for row in rows))
    fixed = [side for side in sides if side not in (PLAIN, TUNED)]
    colours = {side: SHADES[min(i, len(SHADES) - 1)] for i, side in enumerate(fixed)}
    colours |= {PLAIN: "0.5", TUNED: "#d94801"}
    names = ("measured_over_plain", "modelled_over_plain")
    for panel, name, shown in zip(panels, names, ("vLLM, wall", "replay, modelled"), strict=True):
        for side in sides:
            points = [
                (row["batch_size"], row[name])
                for row in rows
                if row["side"] == side and row[name] is not None
            ]
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", color=colours[side], label=side)
        panel.set_xscale("log", base=2)
        panel.set_xlabel("batch size")
        panel.set_title(shown, fontsize="medium")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("decode tokens/s over no speculation")
    panels[1].legend(frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
