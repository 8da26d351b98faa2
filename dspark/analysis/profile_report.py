"""A profile as tables and sentences: what was measured, where the knees are, how good the line is."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from dspark.cost.fit import fit_linear
from dspark.cost.knee import find_knee

if TYPE_CHECKING:
    from rich.table import Table

    from dspark.cost.fit import FitError
    from dspark.cost.knee import Knee
    from dspark.cost.profile import Profile

NOISY = 0.3
"""Spread of the repeats from which a profile is called noisy."""

MIN_SIZES = 3
"""Tokens that a curve needs for its knee."""


def title(profile: Profile) -> str:
    """What was measured, and on what."""
    model, machine = profile.model, profile.machine
    threads = f"{machine.num_threads} thread{'' if machine.num_threads == 1 else 's'}"
    where = f"{machine.processor}, {threads}" if machine.device == "cpu" else machine.device
    return f"{model.name}, {model.dtype}, numerics {model.numerics}, on {where}, torch {machine.torch}"


def pass_table(profile: Profile) -> Table:
    """Median milliseconds of a pass: a line a number of tokens, a column a pair of rows and context."""
    from rich.table import Table

    table = Table(
        title="Passes of the target, ms (medians); columns: rows, cached tokens a row", title_justify="left"
    )
    table.add_column("tokens", justify="right")
    curves = profile.curves()
    for rows, context in curves:
        table.add_column(f"{rows} row{'' if rows == 1 else 's'}\n{context}", justify="right")
    found = {pair: dict(zip(*profile.curve(*pair), strict=True)) for pair in curves}
    for tokens in sorted({point.tokens for point in profile.passes}):
        cells = (found[pair].get(tokens) for pair in curves)
        table.add_row(str(tokens), *("" if cell is None else milliseconds(cell) for cell in cells))
    return table


def draft_table(profile: Profile) -> Table:
    """Median milliseconds of drafter and overhead: a line a number of rows, columns by depth."""
    from rich.table import Table

    about = profile.drafter
    table = Table(
        title=f"Steps of the engine, ms (medians): drafter {about.name} / overhead of the step, by depth; "
        f"verification {about.verification}, temperature {about.temperature:g}",
        title_justify="left",
    )
    table.add_column("rows", justify="right")
    depths = sorted({point.depth for point in profile.drafts})
    for depth in depths:
        table.add_column(f"depth {depth}", justify="right")
    found = {(point.rows, point.depth): point for point in profile.drafts}
    for rows in sorted({point.rows for point in profile.drafts}):
        points = [found[rows, depth] for depth in depths]
        table.add_row(
            str(rows),
            *(f"{milliseconds(p.median_draft_s)} / {milliseconds(p.median_overhead_s)}" for p in points),
        )
    return table


def knee_of(profile: Profile, rows: int, context: int) -> Knee | None:
    """The knee of a curve; None also where it has too few sizes."""
    tokens, seconds = profile.curve(rows, context)
    return find_knee(tokens, seconds) if len(tokens) >= MIN_SIZES else None


def knee_lines(profile: Profile) -> list[str]:
    """The knee at the fewest rows, by context, in words."""
    rows = min(point.rows for point in profile.passes)
    lines = []
    for context in (context for num, context in profile.curves() if num == rows):
        tokens, _ = profile.curve(rows, context)
        if len(tokens) < MIN_SIZES:
            continue
        where = f"{rows} row{'' if rows == 1 else 's'} of {context} cached tokens"
        lines.append(f"knee, {where}: {_knee_words(knee_of(profile, rows, context), tokens)}")
    return lines


def noise_line(profile: Profile) -> str:
    """How far the repeats of a pass lie apart, and whether that is too much to go by."""
    spreads = [(max(p.seconds) - min(p.seconds)) / p.median_s for p in profile.passes]
    spread = median(spreads)
    advice = "; the machine was busy, measure again when it is idle" if spread > NOISY else ""
    return f"noise: the repeats of a pass lie {100 * spread:.0f} % of their median apart (median){advice}"


def fit_lines(profile: Profile) -> list[str]:
    """The linear fit and its errors, in words."""
    fit = fit_linear(profile)
    cost = fit.cost
    lines = [
        "linear fit, target: "
        f"{milliseconds(cost.target_fixed_s)} ms + {1e3 * cost.target_token_s:.3g} a token "
        f"+ {1e3 * cost.target_row_s:.3g} a row + {1e6 * cost.target_kv_s:.3g} per 1,000 cached tokens; "
        + _error_words(fit.target)
    ]
    if fit.draft is not None:
        lines.append(
            f"linear fit, drafter: {milliseconds(cost.draft_fixed_s)} ms "
            f"+ {1e3 * cost.draft_depth_s:.3g} a depth + {1e3 * cost.draft_row_s:.3g} a row; "
            + _error_words(fit.draft)
        )
    return lines


def summary_rows(profile: Profile) -> list[dict[str, Any]]:
    """A plain row a measured size."""
    model = {"target": profile.model.name, "drafter": profile.drafter.name}
    passes = [
        {
            "kind": "pass",
            **model,
            "rows": point.rows,
            "tokens": point.tokens,
            "context": point.context,
            "num_repeats": len(point.seconds),
            "median_s": point.median_s,
            "min_s": min(point.seconds),
            "max_s": max(point.seconds),
        }
        for point in profile.passes
    ]
    drafts = [
        {
            "kind": "draft",
            **model,
            "rows": point.rows,
            "depth": point.depth,
            "num_repeats": len(point.draft_s),
            "median_draft_s": point.median_draft_s,
            "median_overhead_s": point.median_overhead_s,
        }
        for point in profile.drafts
    ]
    return [*passes, *drafts]


def milliseconds(seconds: float) -> str:
    """Three digits, or what is left of a microsecond."""
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def _knee_words(knee: Knee | None, tokens: list[int]) -> str:
    if knee is None:
        return f"none up to {tokens[-1]} tokens: further tokens are nearly free"
    slope = f"{milliseconds(knee.token_s)} ms a token"
    if not knee.is_inside:
        return f"at or below {tokens[0]} tokens: every further token is paid for, {slope}"
    return f"{knee.tokens:.3g} tokens: {milliseconds(knee.flat_s)} ms up to there, then {slope}"


def _error_words(error: FitError) -> str:
    r2 = "" if error.r2 is None else f", R² {error.r2:.3f}"
    return (
        f"off by {100 * error.median_relative:.0f} % (median) and {100 * error.max_relative:.0f} % at most, "
        f"RMSE {milliseconds(error.rmse_s)} ms{r2}"
    )
