"""`engine.clock=modelled`: real tokens, a cost model's seconds, and columns that say so everywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from dspark.analysis.frames import steps_frame, summary_frame
from dspark.metrics.time_fields import TIME_FIELDS
from tests.cli.conftest import read_json, read_lines, run_process
from tests.documents import REPO

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

MODELLED = ("engine.clock=modelled", "cost=published", "cost.name=illusion-llama3.1-8b-h100-eagle")
NAME = "published illusion-llama3.1-8b-h100-eagle"
SMOKE = ("debug=smoke", "hydra.run.dir=out")


@pytest.fixture(scope="module")
def compared(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """Plain decoding against drafts that are all right, at batch 1 on a modelled machine."""
    folder = tmp_path_factory.mktemp("modelled")
    sizes = ("workload.num_requests=1", "sampling.max_new_tokens=16", "sampling.ignore_eos=true")
    grid = ("compare.policies=[fixed 0,fixed 4]", "compare.batch_sizes=[1]", "drafter=self")
    result = run_process(["compare", *SMOKE, *MODELLED, *sizes, *grid], folder, model_cache)
    assert result.code == 0, result.err
    return result, folder / "out"


def _wall_names(item: dict[str, Any]) -> set[str]:
    return set(item) & TIME_FIELDS


def test_no_file_has_a_column_of_wall_seconds(compared: tuple[Result, Path]) -> None:
    _, folder = compared
    rows = read_json(folder / "summary.json")["rows"]
    assert len(rows) == 2
    items = [*rows, *(each for row in rows for each in row["repeats"])]
    items += [cell["row"] for cell in read_lines(folder / "cells.jsonl")]
    items += read_lines(folder / "steps.jsonl") + read_lines(folder / "outputs.jsonl")
    assert [_wall_names(item) for item in items] == [set()] * len(items)
    assert set(rows[0]) >= {
        *(
            "modelled_wall_s",
            "modelled_tokens_per_s",
            "modelled_decode_tokens_per_s",
            "modelled_time_split_s",
        ),
        *("modelled_ttft_mean_s", "modelled_tpot_mean_s", "modelled_ratio_to_plain", "cost_model"),
    }
    assert rows[0]["cost_model"] == NAME
    assert sum(rows[1]["modelled_time_split_s"].values()) == pytest.approx(rows[1]["modelled_wall_s"])
    assert rows[1]["modelled_time_split_s"]["policy"] == rows[1]["modelled_time_split_s"]["verify"] == 0.0


def test_the_ratio_at_batch_1_is_that_of_the_fit(compared: tuple[Result, Path]) -> None:
    """15 tokens after the prefill of P: 15 plain steps, or 3 of 4 drafts, as in the engine's own test."""
    _, folder = compared
    steps = read_lines(folder / "steps.jsonl")
    (prompt,) = {step["num_prefill_tokens"] for step in steps if step["num_prefill_tokens"]}
    fixed, kv, token, overhead = 5.88590713e-3, 3.92645679e-8, 2.10103129e-5, 1.20683946e-3
    draft_fixed, draft_kv, draft_depth = 2.13526175e-3, 2.37768493e-9, 8.41429603e-7
    plain_s = 15 * (fixed + token + overhead) + kv * (15 * prompt + 105)
    drafted_s = 3 * (fixed + 5 * token + overhead + draft_fixed + 4 * draft_depth)
    drafted_s += (kv + draft_kv) * (3 * prompt + 15)
    plain, drafted = read_json(folder / "summary.json")["rows"]
    assert plain["modelled_decode_tokens_per_s"] == pytest.approx(15 / plain_s)
    assert drafted["modelled_decode_tokens_per_s"] == pytest.approx(15 / drafted_s)
    assert drafted["modelled_ratio_to_plain"] == pytest.approx(plain_s / drafted_s)
    assert drafted["modelled_ratio_to_plain"] > 3.5


def test_table_progress_and_figure_say_that_they_are_modelled(compared: tuple[Result, Path]) -> None:
    result, folder = compared
    assert f"seconds modelled on {NAME}" in " ".join(result.out.split())
    assert [path.name for path in (folder / "figures").iterdir()] == ["modelled_tokens_per_s.png"]
    lines = [line for line in result.err.splitlines() if line.startswith("cell ")]
    assert len(lines) == 2
    assert all(re.search(r"\d modelled tokens/s in [\d.]+ modelled s$", line) for line in lines)


def test_frames_have_modelled_columns(compared: tuple[Result, Path]) -> None:
    _, folder = compared
    steps = steps_frame(folder)
    assert {"modelled_wall_s", "modelled_draft_s", "modelled_target_s"} <= set(steps.columns)
    assert not {"wall_s", "draft_s", "target_s"} & set(steps.columns)
    assert not set(summary_frame(folder).columns) & TIME_FIELDS


def test_every_field_is_in_the_document(compared: tuple[Result, Path]) -> None:
    _, folder = compared
    row = read_json(folder / "summary.json")["rows"][0]
    named = set(re.findall(r"`(\w+)(?:\[k-1\])?`", (REPO / "docs" / "metrics.md").read_text()))
    assert {name.removeprefix("modelled_") for name in row} | {"modelled_"} <= named


def test_a_run_under_load_has_the_same_times_again(dspark: Callable[..., Result], tmp_path: Path) -> None:
    load = ("workload.arrivals.rate_per_s=40", "workload.num_requests=4", "engine.max_batch_size=2")
    bounds = ("goodput.max_ttft_s=0.05", "goodput.max_tpot_s=0.05")
    rows = []
    for name in ("one", "two"):
        arguments = ("debug=smoke", f"hydra.run.dir={name}", *MODELLED, *load, *bounds)
        result = dspark("run", *arguments)
        assert result.code == 0, result.err
        rows += read_json(tmp_path / name / "summary.json")["rows"]
    assert rows[0] == rows[1]
    assert rows[0]["modelled_ttft_mean_s"] > 0
    assert 0 < rows[0]["modelled_goodput_tokens_per_s"] <= rows[0]["modelled_tokens_per_s"]
    outputs = [(tmp_path / name / "outputs.jsonl").read_text() for name in ("one", "two")]
    assert outputs[0] == outputs[1]


def test_a_modelled_clock_needs_a_cost_model(dspark: Callable[..., Result], tmp_path: Path) -> None:
    error = dspark("run", *SMOKE, "engine.clock=modelled").error
    assert "engine.clock=modelled needs a cost model" in error
    for way_out in ("cost=published", "cost=roofline", "`dspark profile`"):
        assert way_out in error
    assert not (tmp_path / "out" / "steps.jsonl").exists()  # refused before the folder is written to


def test_a_clock_that_does_not_exist_is_refused(dspark: Callable[..., Result]) -> None:
    error = dspark("run", *SMOKE, "engine.clock=model").error
    assert "engine.clock must be one of wall, modelled, got 'model'" in error


@pytest.mark.parametrize("clocks", [("wall", "modelled"), ("modelled", "wall")])
def test_wall_and_modelled_steps_do_not_go_into_one_folder(
    dspark: Callable[..., Result], tmp_path: Path, clocks: tuple[str, str]
) -> None:
    before, after = clocks
    assert dspark("run", *SMOKE, "cost=published", f"engine.clock={before}").code == 0
    steps = (tmp_path / "out" / "steps.jsonl").read_text()
    error = dspark("run", *SMOKE, "cost=published", f"engine.clock={after}", "resume=true").error
    assert f"had engine.clock='{before}', and resume=true got '{after}'" in error
    assert (tmp_path / "out" / "steps.jsonl").read_text() == steps


def test_a_modelled_run_can_be_resumed(dspark: Callable[..., Result], tmp_path: Path) -> None:
    arguments = (*SMOKE, *MODELLED)
    assert dspark("run", *arguments).code == 0
    (before,) = read_json(tmp_path / "out" / "summary.json")["rows"]
    outputs = tmp_path / "out" / "outputs.jsonl"
    whole = outputs.read_text()
    result = dspark("run", *arguments, "resume=true")
    assert result.code == 0, result.err
    assert read_json(tmp_path / "out" / "summary.json")["rows"] == [before]
    assert outputs.read_text() == whole
