"""The reliability diagram of a calibration, and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.analysis.calibration import reliability
from dspark.analysis.predictions import conditional_outcomes, survival_outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from rich.table import Table

    from dspark.analysis.calibration import Calibration, Comparison
    from dspark.analysis.predictions import Outcomes

FEW = "*"
"""Marks what rests on fewer samples than were asked for."""

_BEFORE, _AFTER = "#d55e00", "#0072b2"


def calibration_table(calibration: Calibration, title: str) -> Table:
    """A table with a line a position and one for all together; each score as before → after."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=_caption(calibration), caption_justify="left")
    table.add_column("position", justify="right")
    table.add_column("temperature", justify="right")
    for kind in ("conditional", "survival"):
        table.add_column(f"{kind}\nsamples", justify="right")
        for heading in ("accepted\n%", "ECE\n%", "Brier", "ROC-AUC"):
            table.add_column(heading, justify="right")
    last = len(calibration.positions)
    for position in calibration.positions:
        table.add_row(
            str(position.position),
            f"{position.temperature:.3f}{'' if position.fitted else FEW}",
            *_cells(position.conditional),
            *_cells(position.survival),
            end_section=position.position == last,
        )
    table.add_row("all", "", *_cells(calibration.conditional), *_cells(calibration.survival), style="bold")
    return table


def draw_reliability(calibration: Calibration, path: Path, *, title: str) -> Path:
    """``path``, which then holds the reliability diagram: acceptance against prediction, by position.

    The upper row is conditional acceptance, the lower one survival. A dot is a bin, its area the
    bin's share of the samples; on the diagonal predictions are right.

    Args:
        calibration: what to draw.
        path: the PNG file to write.
        title: above all panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    depth = len(calibration.positions)
    figure = Figure(figsize=(max(2.1 * depth, 5.0), 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    panels = figure.subplots(2, depth, squeeze=False, sharex=True, sharey=True)
    for row, outcomes in zip(panels, (conditional_outcomes, survival_outcomes), strict=True):
        for panel, position in zip(row, calibration.positions, strict=True):
            k = position.position
            found = position.conditional if outcomes is conditional_outcomes else position.survival
            panel.set_title(
                f"position {k}, n = {found.num_samples:,}{'' if found.enough else FEW}", fontsize="small"
            )
            pair = [outcomes(half, k) for half in (calibration.before, calibration.after)]
            _draw_panel(panel, pair, calibration.num_bins)
    panels[0][0].set_ylabel("conditional acceptance")
    panels[1][0].set_ylabel("survival")
    for panel in panels[1]:
        panel.set_xlabel("predicted", fontsize="small")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _draw_panel(panel: Axes, pair: Sequence[Outcomes], num_bins: int) -> None:
    panel.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="right")
    looks = (("before", _BEFORE, "o"), ("after", _AFTER, "s"))
    for (label, colour, marker), outcomes in zip(looks, pair, strict=True):
        shares, means, sizes = [], [], []
        if len(outcomes):
            shares, means, counts = reliability(outcomes, num_bins)
            sizes = 8 + 160 * counts / counts.sum()
        panel.plot(means, shares, color=colour, linewidth=1, alpha=0.4)
        panel.scatter(means, shares, s=sizes, color=colour, marker=marker, alpha=0.8, label=label)
    panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    panel.grid(visible=True, color="0.9", linewidth=0.6)


def _cells(comparison: Comparison) -> list[str]:
    """Samples, share accepted, ECE, Brier score and ROC-AUC."""
    before, after, num = comparison.before, comparison.after, comparison.num_samples
    return [
        f"{num:,}{'' if comparison.enough else FEW}",
        _number(100 * comparison.num_accepted / num if num else None, 1),
        _change(*(None if score.ece is None else 100 * score.ece for score in (before, after)), digits=1),
        _change(before.brier, after.brier, digits=3),
        _change(before.roc_auc, after.roc_auc, digits=3),
    ]


def _change(before: float | None, after: float | None, *, digits: int) -> str:
    """Both numbers, or one where no printed digit tells them apart."""
    pair = dict.fromkeys(_number(value, digits) for value in (before, after))
    return "→".join(pair)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _caption(calibration: Calibration) -> str:
    num_fit, num_judged = len(calibration.fit_requests), len(calibration.evaluation_requests)
    return (
        f"before→after, where they differ; temperatures fitted on {num_fit} and judged by {num_judged} "
        f"requests, ECE in {calibration.num_bins} bins.\n{FEW} fewer than {calibration.min_samples} samples; "
        "a temperature so marked is not fitted."
    )
