"""The figure is a PNG with a line a policy, and draws what the rows hold."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from dspark.analysis import figures
from tests.analysis.test_report import make_summary_row

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

ROWS = [
    make_summary_row("fixed 4", 1, 12.0),
    make_summary_row("fixed 0", 1, 10.0),
    make_summary_row("fixed 0", 16, 80.0),
    make_summary_row("fixed 4", 16, 60.0),
    make_summary_row("fixed 4", 4, None),
]


def test_the_file_is_a_readable_png(tmp_path: Path) -> None:
    path = figures.draw_throughput(ROWS, tmp_path / "figures" / "a.png", title="t", baseline="fixed 0")
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert width >= 1200
    assert height >= 600


def test_lines_axes_and_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Axes] = []
    original = figures._draw_panel

    def spy(panel: Axes, *arguments: object) -> None:
        original(panel, *arguments)
        seen.append(panel)

    monkeypatch.setattr(figures, "_draw_panel", spy)
    figures.draw_throughput(ROWS, tmp_path / "a.png", title="t", baseline="fixed 0")
    decode, end_to_end = seen
    lines = {line.get_label(): line for line in decode.get_lines()}
    assert list(lines) == ["fixed 0 (plain)", "fixed 4"]
    assert list(lines["fixed 4"].get_xdata()) == [1, 16]  # undefined at 4, so left out
    assert list(lines["fixed 4"].get_ydata()) == [12.0, 60.0]
    assert list(end_to_end.get_lines()[1].get_ydata()) == [6.0, 30.0]
    assert decode.get_xscale() == "log"
    assert decode.get_ylim()[0] == 0
    assert [label.get_text() for label in decode.get_xticklabels()] == ["1", "4", "16"]


@pytest.mark.parametrize("baseline", [None, "fixed 0"])
def test_a_measure_that_no_row_has_leaves_an_empty_panel(tmp_path: Path, baseline: str | None) -> None:
    rows = [{**make_summary_row("fixed 0", 1, None), "tokens_per_s": 3.0}]
    assert figures.draw_throughput(rows, tmp_path / "a.png", title="t", baseline=baseline).exists()
