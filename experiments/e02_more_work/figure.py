"""Time against work, both over plain decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COLOURS = ("#2171b5", "#6a51a3", "#d94801", "#238b45")


def draw(found: Mapping[int, Mapping[str, tuple[float, float]]], path: Path, *, dynamic: str) -> None:
    """Writes the PNG file ``path``.

    Args:
        found: by batch size and policy, work and seconds over those of plain decoding; fixed depths ascend.
        path: of the file.
        dynamic: the policy that is drawn by itself.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    for colour, (size, policies) in zip(COLOURS, found.items(), strict=False):
        fixed = [(1.0, 1.0), *(point for policy, point in policies.items() if policy != dynamic)]
        work, seconds = zip(*fixed, strict=True)
        panel.plot(work, seconds, "o-", color=colour, label=f"batch {size}, fixed depths")
        for policy, (x, y) in policies.items():
            if policy != dynamic:
                panel.annotate(policy.removeprefix("fixed "), (x, y), (4, 4), textcoords="offset points")
        panel.plot(*policies[dynamic], "*", color=colour, markersize=12, label="depth by confidence")
    panel.axhline(1, color="0.5", linewidth=0.8)
    panel.axvline(1, color="0.5", linewidth=0.8)
    panel.set_xlabel("target FLOPs an output token, over plain decoding")
    panel.set_ylabel("seconds an output token, over plain decoding")
    panel.grid(visible=True, color="0.9", linewidth=0.6)
    panel.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
