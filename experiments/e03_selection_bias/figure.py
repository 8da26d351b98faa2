"""Bars of one probability by policy and verification rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction
    from pathlib import Path

COLOURS = ("#d94801", "#2171b5")


def draw(firsts: Mapping[tuple[str, str], Fraction], path: Path, *, target: float) -> None:
    """Writes the PNG file ``path``: a group of bars a rule, a colour a policy, a line at the target's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    policies = list(dict.fromkeys(policy for policy, _ in firsts))
    rules = list(dict.fromkeys(rule for _, rule in firsts))
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.subplots()
    width = 0.8 / len(policies)
    for number, policy in enumerate(policies):
        places = [i + (number - (len(policies) - 1) / 2) * width for i in range(len(rules))]
        heights = [float(firsts[policy, rule]) for rule in rules]
        bars = panel.bar(places, heights, width * 0.95, color=COLOURS[number], label=policy)
        panel.bar_label(bars, fmt="%.2f", padding=1)
    panel.axhline(target, color="0.3", linewidth=1, linestyle="--", label="the target's")
    panel.set_xticks(range(len(rules)), rules)
    panel.set_ylim(0, 1)
    panel.set_ylabel("Pr(first token is A)")
    panel.legend(loc="lower center", ncols=len(policies) + 1, bbox_to_anchor=(0.5, 1.0), frameon=False)
    figure.savefig(path, dpi=150)
