"""The reliability diagram is a PNG of what the calibration holds, and the table says it in numbers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from dspark.analysis import reliability
from tests.analysis.predicted import miscalibrated
from tests.analysis.test_calibration import run

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from dspark.analysis.calibration import Calibration


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return run(miscalibrated([2.0, 0.5], num_drafts=400), min_samples=120, num_bins=5)


def lines_of(calibration: Calibration) -> list[str]:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(reliability.calibration_table(calibration, "a title"))
    return shown.get().splitlines()


def test_the_table_has_a_line_a_position_and_one_for_all(calibration: Calibration) -> None:
    lines = lines_of(calibration)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert [row[0] for row in rows] == ["1", "2", "all"]
    first, second, together = calibration.positions[0], calibration.positions[1], calibration.survival
    assert rows[0][1] == f"{first.temperature:.3f}"
    assert rows[0][2] == str(first.conditional.num_samples)
    assert rows[0][4] == f"{100 * first.conditional.before.ece:.1f}→{100 * first.conditional.after.ece:.1f}"
    assert rows[0][6] == f"{first.conditional.before.roc_auc:.3f}", "the order of a position does not change"
    assert rows[2][9] == f"{100 * together.before.ece:.1f}→{100 * together.after.ece:.1f}"
    assert second.conditional.enough == (not rows[1][2].endswith("*"))


def test_few_samples_are_marked() -> None:
    sparse = run(miscalibrated([1.0, 1.0], num_drafts=60), min_samples=1000)
    lines = [line for line in lines_of(sparse) if line.startswith("│")]
    assert all(line.count("*") == 3 for line in lines[:2])  # the temperature and both numbers of samples
    assert "fewer than 1000 samples" in " ".join(lines_of(sparse))


def test_scores_that_do_not_exist_are_dashes() -> None:
    empty = run(miscalibrated([1.0], num_drafts=0))
    row = next(line for line in lines_of(empty) if line.startswith("│"))
    assert [cell.strip() for cell in row.split("│")[2:-1]] == ["1.000*", *["0*", "-", "-", "-", "-"] * 2]


def test_the_figure_is_a_png_with_two_panels_a_position(
    calibration: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Axes] = []
    original = reliability._draw_panel

    def spy(panel: Axes, *arguments: object) -> None:
        original(panel, *arguments)
        seen.append(panel)

    monkeypatch.setattr(reliability, "_draw_panel", spy)
    path = reliability.draw_reliability(calibration, tmp_path / "figures" / "a.png", title="t")
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) >= (700, 700)
    assert [panel.get_title().split(",")[0] for panel in seen] == ["position 1", "position 2"] * 2
    _, before, after = seen[2].get_lines()
    shares, means, _ = reliability.reliability(
        reliability.survival_outcomes(calibration.after, 1), calibration.num_bins
    )
    np.testing.assert_allclose(after.get_xdata(), means)
    np.testing.assert_allclose(after.get_ydata(), shares)
    assert not np.array_equal(before.get_xdata(), means)


def test_a_calibration_without_samples_has_empty_panels(tmp_path: Path) -> None:
    empty = run(miscalibrated([1.0, 1.0], num_drafts=0))
    assert reliability.draw_reliability(empty, tmp_path / "a.png", title="t").exists()
