"""A profile in words and pictures: knees, fit, noise, what the frames leave out."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from matplotlib.image import imread
from rich.console import Console

from dspark.analysis.profile_figures import draw_step_time, draw_tokens_per_s
from dspark.analysis.profile_report import (
    draft_table,
    fit_lines,
    knee_lines,
    noise_line,
    pass_table,
    summary_rows,
    title,
)
from dspark.cost.profile import PassPoint, Profile
from tests.cost.profiles import by_law


def hinge(rows: int, context: int, tokens: int) -> float:
    """0.5 s up to 8 tokens, 0.05 s for each after."""
    return 0.5 + 0.05 * max(0, tokens - 8)


def text_of(table: object) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(table)
    return console.export_text()


def test_the_knee_in_words() -> None:
    lines = knee_lines(by_law(hinge, contexts=(10, 50)))
    assert lines == [
        f"knee, 1 row of {context} cached tokens: 8 tokens: 500 ms up to there, then 50 ms a token"
        for context in (10, 50)
    ]
    (line,) = knee_lines(by_law(lambda r, c, n: 0.25 * n, contexts=(10,)))
    assert line.endswith("at or below 1 tokens: every further token is paid for, 250 ms a token")
    (line,) = knee_lines(by_law(lambda r, c, n: 1.0, contexts=(10,)))
    assert line.endswith("none up to 32 tokens: further tokens are nearly free")
    assert knee_lines(by_law(hinge, tokens=(16, 32))) == []


def test_the_fit_in_words() -> None:
    lines = fit_lines(by_law(lambda r, c, n: 0.03 + 2e-3 * n + 1e-6 * r * c, draft=lambda r, d: 5e-3 * d))
    assert lines[0].startswith(
        "linear fit, target: 30 ms + 2 a token + 0 a row + 1 per 1,000 cached tokens; off by 0 % (median)"
    )
    assert lines[1].startswith("linear fit, drafter: ")
    assert " ms + 5 a depth + " in lines[1]
    assert len(fit_lines(by_law(hinge))) == 1


@pytest.mark.parametrize(
    ("repeats", "shown"),
    [((1.0, 1.1, 0.9), "lie 20 % of their median apart (median)"), ((1.0, 2.0), "67 %"), ((1.0,), "lie 0 %")],
)
def test_noise(repeats: tuple[float, ...], shown: str) -> None:
    # 1.1 - 0.9 of a median of 1; 2 - 1 of a median of 1.5
    profile = by_law(hinge)
    points = tuple(replace(point, seconds=repeats) for point in profile.passes)
    line = noise_line(replace(profile, passes=points))
    assert shown in line
    assert line.endswith("measure again when it is idle") == (repeats == (1.0, 2.0))


def test_the_tables_show_the_medians() -> None:
    profile = by_law(hinge, rows=(1, 4), contexts=(10,), draft=lambda r, d: r * d * 1e-3)
    shown = " ".join(text_of(pass_table(profile)).split())
    assert "│ 32 │ 1,700 │ 1,700 │" in shown  # 0.5 + 24 · 0.05 s
    assert "│ 1 │ 500 │ │" in shown  # 4 rows have no pass of one token
    shown = " ".join(text_of(draft_table(profile)).split())
    assert "│ 4 │ 4 / 500 │ 8 / 500 │ 16 / 500 │" in shown  # drafter and overhead at depths 1, 2 and 4
    assert "drafter ngram" in shown
    rows = summary_rows(profile)
    assert [row["kind"] for row in rows] == ["pass"] * 10 + ["draft"] * 6
    assert title(profile) == "tiny, float32, numerics fast, on none, 1 thread, torch 2.13.0"


def test_the_pictures_are_as_wide_as_their_contexts(tmp_path: Path) -> None:
    profile = by_law(hinge)
    late = PassPoint(rows=1, context=10, tokens=1, seconds=(0.5, 0.5, 60.0))  # a repeat that was held up
    held = Profile(
        machine=profile.machine,
        model=profile.model,
        drafter=profile.drafter,
        passes=(late, *(p for p in profile.passes if (p.rows, p.context, p.tokens) != (1, 10, 1))),
        drafts=(),
    )
    for draw in (draw_step_time, draw_tokens_per_s):
        path = draw(held, tmp_path / "new" / "figure.png")
        assert imread(path).shape[:2] == (720, 1890)  # 4.8 and 3 · 4.2 inches at 150 dots
