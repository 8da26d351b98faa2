"""Records on disk as JSON lines: written as they come, readable after a kill.

Every line is flushed, so a killed process loses at most the line it was writing. Readers skip
such a torn last line, and ``drop_torn_line`` removes it before a file is continued.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from dspark.metrics.time_fields import by_modelled_clock, named_by_clock, time_field
from dspark.types import Completion, FinishReason, RowRecord, StepRecord, TokenChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

_ROW_FIELDS = RowRecord.__slots__


class JsonlWriter:
    """Appends objects to a file, one flushed line each; a context manager."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def write(self, item: dict[str, Any]) -> None:
        """Append one line.

        Raises:
            ValueError: a number is NaN or infinite, which JSON has no word for.
        """
        self._file.write(json.dumps(item, allow_nan=False, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> JsonlWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file, in order, without a torn last line; nothing if there is no file.

    Raises:
        ValueError: a line before the last is not JSON.
    """
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                return
            try:
                item = json.loads(line)
            except json.JSONDecodeError as error:
                message = f"{path} line {number} is not JSON ({error.msg}): the file is damaged"
                raise ValueError(message) from error
            yield item


def drop_torn_line(path: Path) -> None:
    """Cut a file back to its last whole line."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.read().rfind(b"\n") + 1
        file.truncate(end)


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a file with the wanted objects only; the old file stays whole until the new one is."""
    if not path.exists():
        return
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with JsonlWriter(partial) as writer:
        for item in filter(wanted, read_jsonl(path)):
            writer.write(item)
    os.replace(partial, path)


def write_json(path: Path, item: dict[str, Any]) -> None:
    """Write a whole JSON file in one stroke: readers see the old one or the new one.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    partial = path.with_suffix(".partial")
    partial.write_text(
        json.dumps(item, allow_nan=False, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
    )
    os.replace(partial, path)


def step_to_json(step: StepRecord) -> dict[str, Any]:
    """A step as a plain object; its rows as columns, its tokens by request."""
    item = {
        "step": step.step,
        "wall_s": step.wall_s,
        "time_split_s": dict(step.time_split_s),
        "num_prefill_rows": step.num_prefill_rows,
        "num_prefill_tokens": step.num_prefill_tokens,
        "num_pass_tokens": step.num_pass_tokens,
        "context_tokens": step.context_tokens,
        "rows": {name: [getattr(row, name) for row in step.rows] for name in _ROW_FIELDS},
        "tokens": {chunk.request_id: list(chunk.token_ids) for chunk in step.chunks},
    }
    return named_by_clock(item, is_modelled=step.is_modelled)


def step_from_json(item: dict[str, Any]) -> StepRecord:
    """The step that ``step_to_json`` wrote; completions are in a file of their own."""
    columns = item["rows"]
    is_modelled = by_modelled_clock(item)
    return StepRecord(
        step=item["step"],
        rows=tuple(
            RowRecord(**dict(zip(_ROW_FIELDS, values, strict=True)))
            for values in zip(*(columns[name] for name in _ROW_FIELDS), strict=True)
        ),
        num_prefill_rows=item["num_prefill_rows"],
        num_prefill_tokens=item["num_prefill_tokens"],
        num_pass_tokens=item["num_pass_tokens"],
        context_tokens=item["context_tokens"],
        chunks=tuple(
            TokenChunk(request_id=name, token_ids=tuple(ids), completion=None)
            for name, ids in item["tokens"].items()
        ),
        wall_s=item[time_field("wall_s", is_modelled=is_modelled)],
        time_split_s=item[time_field("time_split_s", is_modelled=is_modelled)],
        is_modelled=is_modelled,
    )


def completion_to_json(completion: Completion, *, is_modelled: bool = False) -> dict[str, Any]:
    """A finished request as a plain object, without its prompt; its seconds named by the clock."""
    item = {
        "request_id": completion.request_id,
        "token_ids": list(completion.token_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason.value,
        "ttft_s": completion.ttft_s,
        "latency_s": completion.latency_s,
    }
    return named_by_clock(item, is_modelled=is_modelled)


def completion_from_json(item: dict[str, Any], prompt_ids: tuple[int, ...]) -> Completion:
    """The completion that ``completion_to_json`` wrote, with its prompt again."""
    is_modelled = by_modelled_clock(item)
    return Completion(
        request_id=item["request_id"],
        prompt_ids=prompt_ids,
        token_ids=tuple(item["token_ids"]),
        text=item["text"],
        finish_reason=FinishReason(item["finish_reason"]),
        ttft_s=item[time_field("ttft_s", is_modelled=is_modelled)],
        latency_s=item[time_field("latency_s", is_modelled=is_modelled)],
    )
