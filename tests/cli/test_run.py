"""`dspark run`: one row, its outputs, sweeps, arrivals, the W&B mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dspark.metrics.trace import step_from_json
from dspark.metrics.tracker import step_numbers
from tests.cli.conftest import read_json, read_lines
from tests.metrics.test_tracker import sync
from tests.metrics.wandb_server import WandbServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

SMOKE = ("debug=smoke", "hydra.run.dir=out")


def test_a_run_writes_its_row_and_its_outputs(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("run", *SMOKE, "policy.depth=3", "engine.max_batch_size=2")
    assert result.code == 0, result.err
    summary = read_json(tmp_path / "out" / "summary.json")
    (row,) = summary["rows"]
    assert summary["complete"]
    assert (row["policy"], row["batch_size"], row["verification"]) == ("fixed 3", 2, "rejection")
    outputs = read_lines(tmp_path / "out" / "outputs.jsonl")
    assert [len(item["token_ids"]) for item in outputs] == [8, 8]
    assert {item["finish_reason"] for item in outputs} == {"length"}
    assert row["output_tokens"] == 16
    assert "outputs.jsonl" in result.out


def test_the_text_is_what_the_tokens_say(dspark: Callable[..., Result], tmp_path: Path) -> None:
    assert dspark("run", *SMOKE).code == 0
    for item in read_lines(tmp_path / "out" / "outputs.jsonl"):
        ids = [token for token in item["token_ids"] if token < 256]  # the byte-level tokenizer
        assert item["text"] == bytes(ids).decode("utf-8", errors="replace")


def test_a_sweep_runs_every_value_in_a_folder_of_its_own(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    arguments = ["--multirun", "debug=smoke", "hydra.sweep.dir=sweep", "policy.depth=0,2"]
    result = dspark("run", *arguments)
    assert result.code == 0, result.err
    rows = [read_json(tmp_path / "sweep" / name / "summary.json")["rows"][0] for name in ("0", "1")]
    assert [row["policy"] for row in rows] == ["fixed 0", "fixed 2"]


def test_a_mistake_in_one_job_of_a_sweep_does_not_stop_the_others(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    result = dspark("run", "--multirun", "debug=smoke", "hydra.sweep.dir=sweep", "policy.depth=-1,1")
    assert result.code == 2
    assert "dspark: error: policy: depth must be >= 0, got -1" in result.err
    assert (tmp_path / "sweep" / "1" / "summary.json").exists()


def test_requests_can_arrive_over_time(dspark: Callable[..., Result], tmp_path: Path) -> None:
    arguments = ["workload=poisson", "workload.num_requests=3", "workload.arrivals.rate_per_s=20"]
    result = dspark("run", *SMOKE, *arguments)
    assert result.code == 0, result.err
    assert len(read_lines(tmp_path / "out" / "outputs.jsonl")) == 3


def test_goodput_is_reported_where_it_is_asked_for(dspark: Callable[..., Result], tmp_path: Path) -> None:
    assert dspark("run", *SMOKE, "goodput.max_ttft_s=100", "goodput.max_tpot_s=100").code == 0
    (row,) = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert row["goodput_tokens_per_s"] == row["tokens_per_s"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["drafter=self", "policy=confidence"],
        ["drafter=none", "policy.depth=0"],
        ["drafter=synthetic", "verification=synthetic"],
        ["verification=block", "drafter=self", "sampling.temperature=0.7"],
        ["verification=coupled", "sampling.temperature=0.7", "sampling.top_p=0.9"],
        ["verification=greedy"],
        ["policy=batch_table", "policy.ranges=null", "policy.draft_len_schedule={4:4,8:2}"],
        ["cost=published"],
        ["target.family=gemma3"],
        ["workload.domains=[math]", "workload.order=shuffle", "workload.chat_template=false"],
    ],
)
def test_every_kind_of_part_runs(dspark: Callable[..., Result], arguments: list[str]) -> None:
    result = dspark("run", *SMOKE, *arguments)
    assert result.code == 0, result.err


def test_a_drafter_that_is_the_target_is_always_right(dspark: Callable[..., Result], tmp_path: Path) -> None:
    assert dspark("run", *SMOKE, "drafter=self", "engine.numerics=invariant").code == 0
    (row,) = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert (row["drafter"], row["acceptance_rate"]) == ("self", 1.0)


def test_the_offline_mirror_holds_the_numbers_of_the_summary(
    dspark: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    result = dspark("run", *SMOKE, "tracker=wandb", "drafter=self")
    assert result.code == 0, result.err
    folder = tmp_path / "out"
    (run_file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    with WandbServer() as server:
        sync(run_file, server)
    (row,) = read_json(folder / "summary.json")["rows"]
    steps = [line for line in server.history if "wall_s" in line]
    recorded = [step_numbers(step_from_json(item)) for item in read_lines(folder / "steps.jsonl")]
    assert [
        {key: line[key] for key in numbers} for line, numbers in zip(steps, recorded, strict=True)
    ] == recorded
    assert sum(line["accepted_tokens"] for line in steps) == row["accepted_tokens"]
    assert sum(line["wall_s"] for line in steps) == pytest.approx(row["wall_s"])
    for name in ("output_tokens", "tokens_per_s", "acceptance_length", "target_passes"):
        assert server.summary[f"summary/{name}"] == row[name]
    assert server.config["sampling"]["value"]["max_new_tokens"] == 8
    assert server.config["provenance"]["value"]["command"].startswith("dspark run debug=smoke")
