"""Conditional acceptance by position, a panel a set of prompts and a line a drafter; a PNG file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STYLES = {0.0: "-", 1.0: "--"}
COLOURS = ("#969696", "#08519c", "#fd8d3c", "#238b45", "#756bb1")


def draw(rows: Sequence[dict[str, Any]], path: Path, *, depth: int) -> Path:
    """``path``, which then shows how often draft k is accepted, given that those before it were."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(row["prompts"] for row in rows))
    names = list(dict.fromkeys(row["drafter"] for row in rows))
    figure = Figure(figsize=(3.6 * len(sets), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for panel, prompts in zip(panels, sets, strict=True):
        for row in (row for row in rows if row["prompts"] == prompts):
            values = [value for value in row["conditional_at"] if value is not None]
            panel.plot(
                range(1, len(values) + 1),
                values,
                STYLES.get(row["temperature"], ":"),
                color=COLOURS[names.index(row["drafter"]) % len(COLOURS)],
                marker="o",
                markersize=3,
                label=f"{row['drafter']}, T {row['temperature']:g}: {row['tokens_a_round']:.2f}",
            )
        panel.set_title(prompts, fontsize="medium")
        panel.set_xlabel("position in the draft")
        panel.set_ylim(0, 1)
        panel.set_xticks(range(1, depth + 1))
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small", title="tokens a round", title_fontsize="x-small")
    panels[0].set_ylabel("accepted, given the ones before")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
