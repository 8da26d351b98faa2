"""Tables and figures of modelled rows name the machine, and take no wall rows beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from dspark.analysis import figures
from dspark.analysis.report import summary_table
from dspark.metrics.time_fields import named_by_clock
from tests.analysis.test_report import make_summary_row

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes


def _modelled(policy: str, speed: float, **more: Any) -> dict[str, Any]:
    row = {**make_summary_row(policy, 1, speed, **more), "cost_model": "roofline qwen3_8b h200"}
    return named_by_clock(row, is_modelled=True)


ROWS = [_modelled("fixed 0", 10.0, ratio_to_plain=1.0), _modelled("fixed 4", 12.5, ratio_to_plain=1.25)]
MIXED = [ROWS[0], make_summary_row("fixed 4", 1, 12.5)]


def test_the_table_says_what_its_seconds_are() -> None:
    console = Console(width=200, force_terminal=True, color_system="standard", highlight=False)
    with console.capture() as captured:
        console.print(summary_table(ROWS))
    text = captured.get()
    words = " ".join(re.sub(r"\x1b\[[\d;]*m", "", text).split())  # the title may be on two lines
    assert "numerics fast; seconds modelled on roofline qwen3_8b h200" in words
    assert "12.5" in text
    assert "1.25×" in text
    assert text.count("modelled") == 1 + 4  # decode and end-to-end tokens/s, ratio, seconds
    assert "wall" not in text
    body = [line for line in text.splitlines() if "fixed" in line]
    assert [("\x1b[1m" in line) for line in body] == [False, True]


def test_the_figure_draws_modelled_speeds_and_labels_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Axes] = []
    original = figures._draw_panel

    def spy(panel: Axes, *arguments: object) -> None:
        original(panel, *arguments)
        seen.append(panel)

    monkeypatch.setattr(figures, "_draw_panel", spy)
    figures.draw_throughput(ROWS, tmp_path / "a.png", title="t", baseline="fixed 0")
    decode, end_to_end = seen
    assert decode.get_ylabel() == "modelled tokens/s\non roofline qwen3_8b h200"
    assert [list(line.get_ydata()) for line in decode.get_lines()] == [[10.0], [12.5]]
    assert [list(line.get_ydata()) for line in end_to_end.get_lines()] == [[5.0], [6.25]]


def test_wall_rows_and_modelled_rows_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be put side by side"):
        summary_table(MIXED)
    with pytest.raises(ValueError, match="cannot be put side by side"):
        figures.draw_throughput(MIXED, tmp_path / "a.png", title="t")
