"""Gain by depth, and the time of a round by batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from experiments.e05_proposal_length.timing import Round

COLOURS = {"math": "#2171b5", "code": "#238b45", "chat": "#d94801"}
STYLES = ("-", "--")
PARTS = {
    "sequential head": "#d94801",
    "rest of the drafter": "#fdae6b",
    "target": "#6baed6",
    "rest": "#bdbdbd",
}


def draw(gains: Mapping[str, Mapping[str, Sequence[float]]], rounds: Mapping[int, Round], path: Path) -> None:
    """Writes the PNG file ``path``.

    Args:
        gains: in %, by reference drafter, domain and depth from 1.
        rounds: by batch size.
        path: of the file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for style, (other, domains) in zip(STYLES, gains.items(), strict=False):
        for domain, values in domains.items():
            depths = range(1, len(values) + 1)
            left.plot(depths, values, style, color=COLOURS[domain], label=f"{domain}, over {_short(other)}")
    left.axhline(0, color="0.5", linewidth=0.8)
    left.set_xlabel("depth")
    left.set_ylabel("gain in tokens a round, %")
    left.grid(visible=True, color="0.9", linewidth=0.6)
    left.legend(frameon=False, fontsize="small")
    names = [f"batch {batch}" for batch in rounds]
    below = [0.0] * len(names)
    for part, colour in PARTS.items():
        shares = [100 * _seconds(each)[part] / each.wall_s for each in rounds.values()]
        right.bar(names, shares, bottom=below, color=colour, label=part, width=0.6)
        below = [height + share for height, share in zip(below, shares, strict=True)]
    right.set_ylabel("share of a round, %")
    right.legend(
        frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(PARTS)
    )
    figure.savefig(path, dpi=150)


def _short(drafter: str) -> str:
    return drafter if drafter == "DFlash" else "itself without the head"


def _seconds(each: Round) -> dict[str, float]:
    """Seconds of a round by part; they add up to it."""
    return {
        "sequential head": each.head_s,
        "rest of the drafter": each.draft_s - each.head_s,
        "target": each.target_s,
        "rest": each.wall_s - each.draft_s - each.target_s,
    }
