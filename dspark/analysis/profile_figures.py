"""The two pictures of a profile: seconds of a pass against its tokens, and tokens a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dspark.analysis.profile_report import knee_of, title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dspark.cost.knee import Knee
    from dspark.cost.profile import PassPoint, Profile

_KNEE = "#d55e00"


def draw_step_time(profile: Profile, path: Path) -> Path:
    """``path``, which then holds a panel a context: milliseconds against tokens, a line a number of rows.

    Lines are medians, dots all repeats. Orange is the flat and the sloped line that fit the curve of
    the fewest rows, and the knee where they meet.

    Args:
        profile: what was measured.
        path: the PNG file to write.
    """
    figure, panels, contexts = _panels(profile, "Time of a pass")
    for panel, context in zip(panels, contexts, strict=True):
        fewest = _draw_curves(profile, panel, context, lambda point, seconds: 1e3 * seconds)
        knee = knee_of(profile, fewest, context)
        if knee is not None:
            _draw_knee(panel, knee, [p.tokens for p in profile.passes if p.rows == fewest])
    _set_height(panels)
    panels[0].set_ylabel("ms a pass")
    return _save(figure, panels, path)


def draw_tokens_per_s(profile: Profile, path: Path) -> Path:
    """``path``, which then holds a panel a context: tokens of the pass per second, against tokens.

    That is the output rate if every token of the pass were kept, so an upper bound for any depth.

    Args:
        profile: what was measured.
        path: the PNG file to write.
    """
    figure, panels, contexts = _panels(profile, "Tokens a second, if all of a pass were kept")
    for panel, context in zip(panels, contexts, strict=True):
        _draw_curves(profile, panel, context, lambda point, seconds: point.tokens / seconds)
    _set_height(panels)
    panels[0].set_ylabel("tokens/s")
    return _save(figure, panels, path)


def _panels(profile: Profile, what: str) -> tuple[Figure, Sequence[Axes], list[int]]:
    """A figure with a panel a context, sharing both axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    contexts = sorted({point.context for point in profile.passes})
    figure = Figure(figsize=(max(4.2 * len(contexts), 6.5), 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{what}\n{title(profile)}", fontsize="medium")
    panels = figure.subplots(1, len(contexts), squeeze=False, sharex=True, sharey=True)[0]
    ticks = _ticks(sorted({point.tokens for point in profile.passes}))
    for panel, context in zip(panels, contexts, strict=True):
        panel.set_title(f"{context:,} cached tokens a row", fontsize="medium")
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, [str(tokens) for tokens in ticks])
        panel.minorticks_off()
        panel.set_xlabel("tokens in the pass, all rows together")
        panel.grid(visible=True, color="0.9", linewidth=0.6)
    return figure, panels, contexts


def _ticks(sizes: Sequence[int]) -> list[int]:
    """The sizes that are not too near to the one before on a logarithmic axis."""
    kept = [sizes[0]]
    for size in sizes[1:]:
        if size >= 1.9 * kept[-1]:
            kept.append(size)
    return kept


def _draw_curves(profile: Profile, panel: Axes, context: int, of: Callable[[PassPoint, float], float]) -> int:
    """Medians as lines and repeats as dots, coloured by rows; the fewest rows that were drawn."""
    from matplotlib import colormaps

    all_rows = sorted({point.rows for point in profile.passes})
    shades = colormaps["viridis"](np.linspace(0.05, 0.85, len(all_rows)))
    drawn = []
    for rows, shade in zip(all_rows, shades, strict=True):
        points = _points(profile, rows, context)
        if not points:
            continue
        drawn.append(rows)
        label = f"{rows} row{'' if rows == 1 else 's'}"
        sizes = [point.tokens for point in points]
        panel.plot(
            sizes, [of(p, p.median_s) for p in points], color=shade, marker="o", ms=4, lw=1.6, label=label
        )
        dots = [(p.tokens, of(p, seconds)) for p in points for seconds in p.seconds]
        panel.scatter(*zip(*dots, strict=True), color=shade, s=7, alpha=0.35, linewidths=0)
    return drawn[0]


def _set_height(panels: Sequence[Axes]) -> None:
    """Make room for the medians; a repeat that was held up for long must not flatten all curves."""
    medians = [line for panel in panels for line in panel.get_lines() if line.get_marker() == "o"]
    top = 1.2 * max(np.max(line.get_ydata()) for line in medians)
    for panel in panels:
        panel.set_ylim(0, top)
        heights = np.concatenate([np.asarray(dots.get_offsets())[:, 1] for dots in panel.collections])
        above = int((heights > top).sum())
        if above:
            words = f"{above} repeat{'' if above == 1 else 's'} above the frame"
            panel.set_title(f"{panel.get_title()}, {words}", fontsize="medium")


def _points(profile: Profile, rows: int, context: int) -> list[PassPoint]:
    found = [point for point in profile.passes if (point.rows, point.context) == (rows, context)]
    return sorted(found, key=lambda point: point.tokens)


def _draw_knee(panel: Axes, knee: Knee, sizes: Sequence[int]) -> None:
    """The two lines of the fit, and where they meet."""
    grid = np.geomspace(min(sizes), max(sizes), 200)
    fitted = 1e3 * (knee.flat_s + knee.token_s * np.maximum(0, grid - knee.tokens))
    panel.plot(grid, fitted, color=_KNEE, linestyle="--", linewidth=1.1, label="flat and sloped line")
    panel.axvline(knee.tokens, color=_KNEE, linewidth=1.1, alpha=0.6)
    text = f"knee: {knee.tokens:.3g}" if knee.is_inside else f"knee: {knee.tokens:.3g} or below"
    on_left = knee.tokens**2 > min(sizes) * max(sizes)  # past the middle of a logarithmic axis
    panel.annotate(
        f"{text} tokens",
        (knee.tokens, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-5 if on_left else 5, 0),
        textcoords="offset points",
        color=_KNEE,
        va="top",
        ha="right" if on_left else "left",
    )


def _save(figure: Figure, panels: Sequence[Axes], path: Path) -> Path:
    named = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=6, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
