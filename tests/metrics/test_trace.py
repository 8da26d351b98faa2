"""JSON lines survive a kill, and a step read back is the step that was written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dspark.metrics.trace import (
    JsonlWriter,
    completion_from_json,
    completion_to_json,
    drop_torn_line,
    keep_lines,
    read_jsonl,
    step_from_json,
    step_to_json,
    write_json,
)
from tests.metrics.conftest import make_completion

if TYPE_CHECKING:
    from pathlib import Path

    from dspark.types import StepRecord


def test_lines_are_on_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "a.jsonl")
    writer.write({"a": 1})
    assert list(read_jsonl(tmp_path / "a.jsonl")) == [{"a": 1}]
    writer.close()


@pytest.mark.parametrize("torn", ['{"a": 3', '{"a": 3}', "{", "\x00\x00"])
def test_a_torn_last_line_is_skipped_and_can_be_dropped(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":1}\n{"a":2}\n' + torn)
    assert list(read_jsonl(path)) == [{"a": 1}, {"a": 2}]
    drop_torn_line(path)
    with JsonlWriter(path) as writer:
        writer.write({"a": 4})
    assert list(read_jsonl(path)) == [{"a": 1}, {"a": 2}, {"a": 4}]


def test_a_line_cut_inside_a_character_is_torn_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n' + '{"a":"é'.encode()[:-1])
    assert list(read_jsonl(path)) == [{"a": 1}]
    drop_torn_line(path)
    assert path.read_bytes() == b'{"a":1}\n'


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":1}\n{"a":\n{"a":2}\n')
    with pytest.raises(ValueError, match=r"a.jsonl line 2 is not JSON"):
        list(read_jsonl(path))


def test_no_file_has_no_lines(tmp_path: Path) -> None:
    assert list(read_jsonl(tmp_path / "a.jsonl")) == []
    drop_torn_line(tmp_path / "a.jsonl")
    keep_lines(tmp_path / "a.jsonl", lambda item: True)


def test_keep_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":1}\n{"a":2}\n{"a":3}\n')
    keep_lines(path, lambda item: item["a"] != 2)
    assert path.read_text() == '{"a":1}\n{"a":3}\n'
    assert [item.name for item in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_never_reaches_a_file(tmp_path: Path, value: float) -> None:
    with JsonlWriter(tmp_path / "a.jsonl") as writer, pytest.raises(ValueError, match="JSON"):
        writer.write({"a": value})
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"a": value})
    assert not (tmp_path / "a.json").exists()


def test_write_json_replaces_in_one_stroke(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


def test_steps_come_back(steps: list[StepRecord]) -> None:
    for step in steps:
        assert step_from_json(json.loads(json.dumps(step_to_json(step)))) == step


def test_completions_come_back() -> None:
    done = make_completion("a", 3)
    item = json.loads(json.dumps(completion_to_json(done)))
    assert completion_from_json(item, done.prompt_ids) == done
