"""Artefacts become frames with one row a cell, a step, or a decode row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dspark.analysis.frames import read_summary, rows_frame, steps_frame, summary_frame
from dspark.metrics.trace import JsonlWriter, step_to_json, write_json
from tests.metrics.conftest import make_row, make_step

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    steps = [
        make_step(0, [], wall_s=1.0, prefill=9),
        make_step(
            1, [make_row("a", drafted=3, accepted=1), make_row("b", drafted=0, accepted=0)], wall_s=0.5
        ),
    ]
    with JsonlWriter(tmp_path / "steps.jsonl") as writer:
        for step in steps:
            writer.write({"cell": "c", "attempt": 0, **step_to_json(step)})
    write_json(
        tmp_path / "summary.json", {"schema": 1, "rows": [{"policy": "fixed 0"}, {"policy": "fixed 4"}]}
    )
    return tmp_path


def test_frames(run_dir: Path) -> None:
    assert list(summary_frame(run_dir)["policy"]) == ["fixed 0", "fixed 4"]
    steps = steps_frame(run_dir)
    assert list(steps["num_decode_rows"]) == [0, 2]
    assert list(steps["emitted_tokens"]) == [0, 2 + 1]
    assert list(steps["target_s"]) == [1.0, 0.5]
    rows = rows_frame(run_dir)
    assert list(zip(rows["request_id"], rows["drafted"], rows["step"], strict=True)) == [
        ("a", 3, 1),
        ("b", 0, 1),
    ]


def test_no_steps_make_empty_frames(tmp_path: Path) -> None:
    assert rows_frame(tmp_path).empty
    assert steps_frame(tmp_path).empty


def test_a_summary_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no summary.json"):
        read_summary(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({"schema": 99, "rows": []}))
    with pytest.raises(ValueError, match="has schema 99"):
        read_summary(tmp_path)
