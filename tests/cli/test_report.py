"""`dspark report`: the files it writes and what it prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from tests.analysis.test_collected import make_run, make_sweep
from tests.analysis.test_report import make_summary_row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result


def test_a_sweep_is_reported_in_a_table_a_frame_and_a_figure(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    make_sweep(tmp_path / "sweep", [0, 2, 10])
    result = dspark("report", "sweep", "--sort", "decode_tokens_per_s")
    assert (result.code, result.err) == (0, "")
    assert result.out.index("fixed 10") < result.out.index("fixed 2") < result.out.index("fixed 0")
    table, parquet = pd.read_csv("sweep/report.csv"), pd.read_parquet("sweep/report.parquet")
    assert list(table["policy.depth"]) == list(parquet["policy.depth"]) == [10, 2, 0]
    assert list(parquet["decode_tokens_per_s"]) == [110.0, 30.0, 10.0]
    assert (tmp_path / "sweep" / "figures" / "report_run.png").is_file()
    assert "sweep/figures/report_run.png" in result.out


def test_runs_without_results_are_named_and_settings_of_two_kinds_are_kept(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    rows = [make_summary_row("fixed 1", 4, 10.0, target="tiny")]
    make_run(tmp_path / "in" / "0", rows, ["engine.num_threads=2"], {"engine": {"num_threads": 2}})
    make_run(tmp_path / "in" / "1", None, ["engine.num_threads=auto"], {"engine": {"num_threads": "auto"}})
    result = dspark("report", "in", "--out", "results")
    assert result.code == 0, result.err
    assert "1: no results (engine.num_threads=auto)" in result.out
    assert "no figure: " in result.out
    assert list(pd.read_parquet("results/report.parquet")["engine.num_threads"]) == ["2", "auto"]
    assert not (tmp_path / "in" / "report.csv").exists()


def test_a_folder_without_runs_is_one_line(dspark: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty holds no run" in dspark("report", "empty").error
    assert "there is no folder 'nowhere'" in dspark("report", "nowhere").error
    assert "`dspark report --help`" in dspark("report").error
    assert list((tmp_path / "empty").iterdir()) == []
