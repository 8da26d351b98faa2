"""The picture of a replay: speeds of policies by batch size, between the best fixed depth and hindsight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.analysis.replay.rows import ORACLE, is_fixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

Row = dict[str, Any]

# told apart by those who do not see all colours (Okabe and Ito, jfly.uni-koeln.de/color)
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = "oD^vPX*<"
_BEST_FIXED: Mapping[str, Any] = {"color": "0.45", "linewidth": 3, "label": "best fixed depth (d)"}
_ORACLE: Mapping[str, Any] = {"color": "0.1", "linewidth": 1.6, "linestyle": "--", "label": "oracle"}
_LOWEST_SHARE = -1.0  # headroom below it would flatten what is worth a look


def draw_replay(rows: Sequence[Row], path: Path, *, title: str) -> Path:
    """``path``, which then holds the figure as PNG.

    Left, tokens/s over those of plain decoding: the best fixed depth (which one is below, as d) and the
    oracle are the edges of a shaded room, and policies run through it. Right, the share of that room
    which each policy takes; batch sizes where it is undefined are left out. Bands are intervals. Without
    policies there is the left panel alone.

    Args:
        rows: of ``replay.json``.
        path: the PNG file to write.
        title: above both panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    policies = list(dict.fromkeys(row["policy"] for row in rows if not is_fixed(row)))
    policies.remove(ORACLE)
    num_panels = 2 if policies else 1
    figure = Figure(figsize=(6.2 * num_panels, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize="medium")
    panels = figure.subplots(1, num_panels, squeeze=False)[0]
    for panel in panels:
        _set_sizes(panel, sorted({row["batch_size"] for row in rows}))
    _draw_speeds(panels[0], rows, policies)
    if policies:
        _draw_shares(panels[1], rows, policies)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _set_sizes(panel: Axes, sizes: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes, [str(size) for size in sizes])
    panel.minorticks_off()
    panel.set_xlabel("batch size (rows that decode together)")
    panel.grid(visible=True, color="0.9", linewidth=0.6)


def _draw_speeds(panel: Axes, rows: Sequence[Row], policies: Sequence[str]) -> None:
    """The room between the best fixed depth and the oracle, and the policies' ways through it."""
    key = "modelled_ratio_to_plain_end_to_end"
    best = _points((row for row in rows if row["is_best_fixed"]), key)
    oracle = _points((row for row in rows if row["policy"] == ORACLE), key)
    sizes = [row["batch_size"] for row in best]
    floor, roof = [row[key] for row in best], [row[key] for row in oracle]
    panel.fill_between(sizes, floor, roof, color="0.94", zorder=0)
    panel.axhline(1, color="0.6", linewidth=1, linestyle=":", label="plain decoding")
    panel.plot(sizes, floor, marker="s", **_BEST_FIXED)
    panel.plot(sizes, roof, **_ORACLE)
    for row in best:
        panel.annotate(
            f"d={row['policy'].removeprefix('fixed ')}",
            (row["batch_size"], 0.02),
            xycoords=("data", "axes fraction"),
            ha="center",
            color="0.35",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            zorder=4,
        )
    _draw_policies(panel, rows, policies, key)
    panel.set_title("speed, prefill included", fontsize="medium")
    panel.set_ylabel("modelled tokens/s, over plain decoding")
    panel.margins(y=0.1)


def _draw_shares(panel: Axes, rows: Sequence[Row], policies: Sequence[str]) -> None:
    """The share of the room that each policy takes, from 0 to 1 if all goes well."""
    key = "modelled_headroom"
    panel.axhline(0, **_BEST_FIXED)
    panel.axhline(1, **_ORACLE)
    _draw_policies(panel, rows, policies, key)
    shares = [row[key] for row in rows if row["policy"] in policies and row[key] is not None]
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, _LOWEST_SHARE), max(high, 1.05))
    below = sum(share < _LOWEST_SHARE for share in shares)
    note = f", {below} point{'' if below == 1 else 's'} below the frame" if below else ""
    panel.set_title(f"headroom captured{note}", fontsize="medium")
    panel.set_ylabel("(policy - best fixed) / (oracle - best fixed)")


def _draw_policies(panel: Axes, rows: Sequence[Row], policies: Sequence[str], key: str) -> None:
    """A line and a band a policy."""
    for i, policy in enumerate(policies):
        points = _points((row for row in rows if row["policy"] == policy), key)
        sizes = [row["batch_size"] for row in points]
        colour = _COLOURS[i % len(_COLOURS)]
        panel.plot(
            sizes,
            [row[key] for row in points],
            color=colour,
            marker=_MARKERS[i % len(_MARKERS)],
            linewidth=1.6,
            label=policy,
            zorder=3,
        )
        low, high = ([row[f"{key}_interval"][end] for row in points] for end in (0, 1))
        panel.fill_between(sizes, low, high, color=colour, alpha=0.13, linewidth=0, zorder=2)


def _points(rows: Iterable[Row], key: str) -> list[Row]:
    """The rows where the measure is defined, by batch size."""
    return sorted((row for row in rows if row[key] is not None), key=lambda row: row["batch_size"])
