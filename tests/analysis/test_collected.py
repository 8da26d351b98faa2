"""Many runs become one frame: settings that differ as columns, clocks apart, unfinished runs shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
import yaml
from rich.console import Console

from dspark.analysis import figures
from dspark.analysis.collected import collect, differing, lines_of, num_overlapping, read_runs
from dspark.analysis.collected_report import draw, groups, ordered, swept_number, table_of
from dspark.metrics.time_fields import named_by_clock
from tests.analysis.test_report import make_summary_row

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes


def make_run(
    path: Path,
    rows: list[dict[str, Any]] | None,
    overrides: list[str],
    config: dict[str, Any],
    *,
    command: str = "run",
    complete: bool = True,
    started_at: str = "2026-01-01T00:00:00+00:00",
) -> Path:
    """A run's folder as a command leaves it; rows None: it stopped before there were any."""
    hydra = {
        "job": {"config_name": command},
        "overrides": {"task": overrides},
        "runtime": {"choices": {"policy": "fixed", "debug": None}},
    }
    (path / ".hydra").mkdir(parents=True)
    (path / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump({"hydra": hydra}))
    (path / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config))
    if rows is not None:
        origin = {"command": f"dspark {command}", "started_at": started_at, "config": config, "resumed": []}
        (path / "provenance.json").write_text(json.dumps(origin))
        summary = {"schema": 1, "command": f"dspark {command}", "complete": complete, "rows": rows}
        (path / "summary.json").write_text(json.dumps(summary))
    return path


def make_sweep(folder: Path, depths: list[int], **more: Any) -> Path:
    """A sweep over the depth: a folder a value, at speeds of 10 tokens/s times one more than the depth."""
    for number, depth in enumerate(depths):
        row = make_summary_row(f"fixed {depth}", 4, 10.0 * (depth + 1), target="tiny", time_split_s={"a": 1})
        config = {"policy": {"_target_": "x", "depth": depth}, "engine": {"seed": 0}}
        make_run(folder / str(number), [row], [f"policy.depth={depth}", "engine.seed=0"], config, **more)
    return folder


def test_a_sweep_becomes_rows_with_the_setting_that_differs(tmp_path: Path) -> None:
    make_sweep(tmp_path / "sweep", [0, 2, 10])
    frame = collect([tmp_path / "sweep"])
    assert list(frame["run"]) == ["0", "1", "2"]
    assert list(frame["policy.depth"]) == [0, 2, 10]
    assert "engine.seed" not in frame  # set, and the same everywhere
    assert list(frame["decode_tokens_per_s"]) == [10.0, 30.0, 110.0]
    assert set(frame["clock"]) == {"wall"}
    assert set(frame["state"]) == {"complete"}
    assert "time_split_s" not in frame  # nested: stays in the summaries


def test_a_setting_that_one_run_leaves_to_its_default_has_the_defaults_value(tmp_path: Path) -> None:
    row = make_summary_row("fixed 4", 4, 10.0)
    make_run(tmp_path / "a", [row], [], {"policy": {"depth": 4}})
    make_run(tmp_path / "b", [row], ["policy.depth=1"], {"policy": {"depth": 1}})
    make_run(
        tmp_path / "c",
        [row],
        ["+policy.depth=2", "tracker=none", "hydra.run.dir=c"],
        {"policy": {"depth": 2}},
    )
    runs = read_runs([tmp_path])
    assert differing(runs) == ["policy.depth"]
    assert [line["policy.depth"] for line in lines_of(runs)] == [4, 1, 2]


def test_unfinished_runs_are_rows_too(tmp_path: Path) -> None:
    make_sweep(tmp_path, [0, 1])
    half = [make_summary_row("fixed 2", 4, 5.0)]
    make_run(tmp_path / "2", half, ["policy.depth=2"], {"policy": {"depth": 2}}, complete=False)
    make_run(tmp_path / "3", None, ["policy.depth=3"], {"policy": {"depth": 3}})
    frame = collect([tmp_path])
    assert list(frame["state"]) == ["complete", "complete", "unfinished", "no results"]
    assert list(frame["policy.depth"]) == [0, 1, 2, 3]
    assert str(frame["batch_size"].dtype) == "Int64"  # whole beside a row that lacks it
    assert pd.isna(frame["decode_tokens_per_s"][3])


def test_wall_and_modelled_seconds_never_share_a_column_or_a_table(tmp_path: Path) -> None:
    wall = make_summary_row("fixed 1", 4, 10.0, target="tiny")
    modelled = {**named_by_clock(wall, is_modelled=True), "cost_model": "published"}
    make_run(tmp_path / "a", [wall], ["engine.clock=wall"], {"engine": {"clock": "wall"}})
    make_run(tmp_path / "b", [modelled], ["engine.clock=modelled"], {"engine": {"clock": "modelled"}})
    runs = read_runs([tmp_path])
    frame = collect([tmp_path])
    assert list(frame["clock"]) == ["wall", "modelled"]
    assert list(frame["wall_s"].isna()) == [False, True]
    assert list(frame["modelled_wall_s"].isna()) == [True, False]
    parts = groups(lines_of(runs))
    assert [{line["clock"] for line in part} for part in parts] == [{"modelled"}, {"wall"}]
    assert "modelled" in _shown(parts[0], [])
    assert "modelled" not in _shown(parts[1], [])


def test_earlier_results_and_artefacts_of_a_run_are_no_runs(tmp_path: Path) -> None:
    run = make_sweep(tmp_path, [1]) / "0"
    for inside in ("previous-1", "checkpoints", ".submitit"):
        (run / inside).mkdir()
        (run / inside / "provenance.json").write_text("{}")
    assert [each.path.name for each in read_runs([tmp_path, run])] == ["0"]  # and no run twice


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run: give the hydra"):
        read_runs([tmp_path])
    with pytest.raises(ValueError, match="there is no folder"):
        read_runs([tmp_path / "nowhere"])


def test_runs_that_were_measured_at_the_same_time_are_counted(tmp_path: Path) -> None:
    row = make_summary_row("fixed 1", 4, 10.0)  # 12.34 s
    for number, second in enumerate((0, 5, 20)):
        make_run(tmp_path / str(number), [row], [], {}, started_at=f"2026-01-01T00:00:{second:02}+00:00")
    assert num_overlapping(read_runs([tmp_path])) == 1


def test_lines_are_ordered_by_numbers_as_numbers_or_by_a_column(tmp_path: Path) -> None:
    runs = read_runs([make_sweep(tmp_path, [10, 2, 0])])
    lines = lines_of(runs)
    assert [line["policy.depth"] for line in ordered(lines, differing(runs))] == [0, 2, 10]
    by_speed = ordered([*lines, {"run": "x", "tokens_per_s": None}], [], by="tokens_per_s")
    assert [line["run"] for line in by_speed] == ["0", "1", "2", "x"]
    with pytest.raises(ValueError, match="no column 'speed' to sort by: there are run, command"):
        ordered(lines, [], by="speed")


def _shown(lines: list[Any], settings: list[str]) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table_of(lines, settings))
    return captured.get()


def test_the_table_holds_settings_and_numbers_and_tells_the_rest_once(tmp_path: Path) -> None:
    runs = read_runs([make_sweep(tmp_path, [0, 2])])
    text = _shown(lines_of(runs), differing(runs))
    assert "run: 2 runs, 2 rows; target tiny; drafter ngram" in text
    for shown in ("depth", "fixed 2", "30.0"):
        assert shown in text
    assert "state" not in text  # all are complete


def test_rows_of_other_commands_are_shown_by_what_differs(tmp_path: Path) -> None:
    for name, bias in (("a", 0.0), ("b", 0.125)):
        make_run(tmp_path / name, [{"policy": name, "bias": bias, "worlds": 7}], [], {}, command="audit")
    text = _shown(lines_of(read_runs([tmp_path])), [])
    assert "0.125" in text
    assert "worlds" not in text


def test_the_figure_is_drawn_against_the_swept_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Axes] = []
    original = figures._draw_panel

    def spy(panel: Axes, *arguments: Any) -> None:
        original(panel, *arguments)
        seen.append(panel)

    monkeypatch.setattr(figures, "_draw_panel", spy)
    runs = read_runs([make_sweep(tmp_path, [0, 2])])
    lines, settings = lines_of(runs), differing(runs)
    axis = swept_number(lines, settings)
    assert axis == "policy.depth"
    assert draw(lines, settings, tmp_path / "figure.png", axis).read_bytes()[:4] == b"\x89PNG"
    (line,) = seen[0].get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 2], [10.0, 30.0])
    assert (line.get_label(), seen[0].get_xlabel()) == ("fixed", "policy.depth")


def test_lines_of_the_figure_are_named_by_what_else_differs(tmp_path: Path) -> None:
    for number, (size, seed) in enumerate(((1, 0), (4, 0), (1, 1), (4, 1))):
        config = {"engine": {"seed": seed, "max_batch_size": size}}
        overrides = [f"engine.seed={seed}", f"engine.max_batch_size={size}"]
        make_run(tmp_path / str(number), [make_summary_row("fixed 1", size, 9.0)], overrides, config)
    runs = read_runs([tmp_path])
    lines, settings = lines_of(runs), differing(runs)
    assert swept_number(lines, settings) == "batch_size"
    drawn: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        place = "dspark.analysis.collected_report.draw_throughput"
        patch.setattr(place, lambda rows, path, **_: drawn.extend(row["policy"] for row in rows))
        draw(lines, settings, tmp_path / "x.png", "batch_size")
    assert drawn == ["fixed 1, seed=0", "fixed 1, seed=0", "fixed 1, seed=1", "fixed 1, seed=1"]
    with pytest.raises(ValueError, match="cannot draw against 'policy'"):
        draw(lines, settings, tmp_path / "x.png", "policy")
