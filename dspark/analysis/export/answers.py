"""What a run answered, one request at a time: text, tokens, rounds, and the seconds it took alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark.metrics.time_fields import by_modelled_clock
from dspark.metrics.trace import read_jsonl

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A finished request of a run at batch size 1."""

    request_id: str
    text: str
    num_tokens: int  # all output tokens, the prefill's first included
    emitted: tuple[int, ...]  # tokens of each decode round, the recovered or bonus token included
    wall_s: float  # of all steps of this request, prefill included; waiting for others is not


def read_answers(run: Path) -> list[Answer]:
    """The finished requests of a run's folder, in the order they finished.

    Raises:
        ValueError: a file is missing, several cells are in it, its seconds are modelled, or rows of
            several requests shared a step, so that no seconds are one request's own.
    """
    for name in ("outputs.jsonl", "steps.jsonl"):
        if not (run / name).is_file():
            raise ValueError(f"{run} has no {name}: give the folder of a `dspark run`")
    outputs = list(read_jsonl(run / "outputs.jsonl"))
    cells = {item["cell"] for item in outputs}
    if len(cells) > 1:
        raise ValueError(f"{run} holds {len(cells)} cells, and an export is of one: use `dspark run`")
    if any(by_modelled_clock(item) for item in outputs):
        raise ValueError(
            f"the seconds of {run} are a cost model's, and Spec-Bench compares those of the wall: "
            "run with engine.clock=wall"
        )
    attempts = {item["request_id"]: item["attempt"] for item in outputs}
    wall_s, emitted = _rounds(run, attempts)
    return [
        Answer(
            request_id=item["request_id"],
            text=item["text"],
            num_tokens=len(item["token_ids"]),
            emitted=tuple(emitted[item["request_id"]]),
            wall_s=wall_s[item["request_id"]],
        )
        for item in outputs
    ]


def _rounds(run: Path, attempts: Mapping[str, int]) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Seconds and emitted tokens of each request, in the attempt that finished it."""
    wall_s: dict[str, float] = defaultdict(float)
    emitted: dict[str, list[int]] = defaultdict(list)
    # the steps of a prompt's first chunks name no request: they are of the next one that is named
    unnamed_s, attempt = 0.0, 0
    for item in read_jsonl(run / "steps.jsonl"):
        if item["attempt"] != attempt:
            unnamed_s, attempt = 0.0, item["attempt"]
        unnamed_s += item["wall_s"]
        name = _request_of(item, run)
        if name is None:
            continue
        if attempts.get(name) == attempt:
            wall_s[name] += unnamed_s
            emitted[name] += item["rows"]["emitted"]
        unnamed_s = 0.0
    return wall_s, emitted


def _request_of(step: Mapping[str, Any], run: Path) -> str | None:
    """The request of a step of one row; None where the step names none."""
    num_rows = len(step["rows"]["request_id"]) + step["num_prefill_rows"]
    if num_rows > 1:
        raise ValueError(
            "Spec-Bench times one request at a time, because seconds that requests share are nobody's, got "
            f"a step of {num_rows} rows in {run}: run with engine.max_batch_size=1"
        )
    return next(iter([*step["rows"]["request_id"], *step["tokens"]]), None)
