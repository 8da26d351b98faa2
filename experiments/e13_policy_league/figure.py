"""The league as a heat map a machine, and headroom captured as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e13_policy_league.league import over_domains, standings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from experiments.e13_policy_league.league import Placing

SPREAD = 0.3
"""Ratios beyond 1 -+ this have the colour of the end."""


def draw_ratios(placings: Sequence[Placing], machines: Sequence[str], path: Path) -> None:
    """Writes the PNG file ``path``: policies by batch size, coloured by speed over the best fixed depth."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import TwoSlopeNorm
    from matplotlib.figure import Figure

    policies = [each.policy for each in standings(placings, machines[0])]
    sizes = sorted({each.batch_size for each in placings})
    figure = Figure(figsize=(5.6 * len(machines) + 1, 1.8 + 0.3 * len(policies)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(machines), sharey=True, squeeze=False)[0]
    norm = TwoSlopeNorm(vcenter=1, vmin=1 - SPREAD, vmax=1 + SPREAD)
    image = None
    for panel, machine in zip(panels, machines, strict=True):
        ratios = over_domains(placings, machine)
        grid = [[ratios[policy, size] for size in sizes] for policy in policies]
        image = panel.imshow(grid, cmap="PuOr", norm=norm, aspect="auto")
        for row, values in enumerate(grid):
            for column, value in enumerate(values):
                colour = "white" if abs(value - 1) > 0.7 * SPREAD else "black"
                panel.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
        panel.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        panel.set_xlabel("batch size")
        panel.set_title(machine, fontsize="medium")
    panels[0].set_yticks(range(len(policies)), policies)
    assert image is not None, "there is a machine"
    bar = figure.colorbar(image, ax=list(panels), extend="both", shrink=0.8)
    bar.set_label("modelled tokens/s over the best fixed depth")
    figure.savefig(path, dpi=150)


def draw_headroom(placings: Sequence[Placing], machines: Sequence[str], path: Path) -> None:
    """Writes the PNG file ``path``: mean headroom captured, a bar a policy, a panel a machine."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    order = [each.policy for each in standings(placings, machines[0])]
    figure = Figure(figsize=(5 * len(machines) + 1, 1.4 + 0.26 * len(order)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(machines), sharey=True, squeeze=False)[0]
    for panel, machine in zip(panels, machines, strict=True):
        shares = {each.policy: each.mean_headroom for each in standings(placings, machine)}
        known = [(place, shares[name]) for place, name in enumerate(order) if shares[name] is not None]
        panel.barh([place for place, _ in known], [share for _, share in known], color="#0072b2")
        panel.axvline(0, color="0.3", linewidth=1)
        panel.axvline(1, color="0.3", linewidth=1, linestyle="--")
        panel.set_xlim(-1, 1.05)
        panel.set_xlabel("headroom captured, mean over domains and batch sizes")
        panel.set_title(machine if known else f"{machine}: no room anywhere", fontsize="medium")
        panel.grid(visible=True, axis="x", color="0.9", linewidth=0.6)
    panels[0].set_yticks(range(len(order)), order)
    panels[0].invert_yaxis()
    figure.savefig(path, dpi=150)
