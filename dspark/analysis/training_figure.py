"""The curves of a training as one picture: loss, expected acceptance length, acceptance by draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SMOOTHED = 25  # steps; single ones jump with their answers


def draw_training(lines: Sequence[dict[str, Any]], path: Path, *, title: str) -> Path:
    """``path``, which then holds three panels against steps; dots are held-out answers.

    Args:
        lines: of ``curves.jsonl``.
        path: the PNG file to write.
        title: above the panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    train = [line for line in lines if line["kind"] == "train"]
    held_out = [line for line in lines if line["kind"] == "held_out"]
    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3)
    figure.suptitle(title)
    _draw(panels[0], train, held_out, "loss", "loss")
    _draw(panels[1], train, held_out, "expected_tau", "temperature 1, mean over anchors")
    greedy = [line for line in held_out if "predicted_tau" in line]
    if greedy:
        steps = [line["step"] for line in greedy]
        panels[1].plot(steps, [line["predicted_tau"] for line in greedy], "s--", label="greedy, by rounds")
    names = [name for name in (held_out[-1] if held_out else {}) if name.startswith("accept@")]
    for name in names:
        panels[2].plot(
            [line["step"] for line in held_out], [line[name] for line in held_out], "o-", label=name
        )
    for panel, label in zip(panels, ("loss", "acceptance length", "survival, held out"), strict=True):
        panel.set_xlabel("steps")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _draw(panel: Any, train: Sequence[dict], held_out: Sequence[dict], name: str, label: str) -> None:
    """A number's running mean over training steps, and its held-out points."""
    values = [line[name] for line in train]
    means = [
        sum(values[max(0, i + 1 - _SMOOTHED) : i + 1]) / min(i + 1, _SMOOTHED) for i in range(len(values))
    ]
    panel.plot([line["step"] for line in train], means, color="0.6", label=f"{label}, training")
    panel.plot([line["step"] for line in held_out], [line[name] for line in held_out], "o-", label=label)
