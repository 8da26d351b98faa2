"""The trace of a live run: what `dspark run`, or a cell of `dspark compare`, saw on its way.

A live run looks at the positions where its rounds begin, and there as far as it verifies. Under a fixed
depth d these are the same at any batch size, whoever the neighbours are, so a replay of fixed d on such a
trace is exact, and so is one of fixed 0, which verifies nothing. Nothing else is: another depth begins its
rounds elsewhere. What the drafter would have proposed in the middle of an accepted draft does not follow
from that draft (prompt lookup may find a longer match there, a model has seen other features), so it is
not guessed, and whoever asks for it is refused (``AcceptanceTrace.check_whole``).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark.analysis.frames import read_summary
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.metrics.trace import read_jsonl, step_from_json
from dspark.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dspark.types import RowRecord

INDEPENDENT = ("greedy", "coupled")
"""Rules under which a text does not depend on what was drafted, at any temperature."""
_ORIGIN = ("target", "drafter", "verification", "temperature", "workload", "numerics")


def read_visited(run_dir: Path, cell: str | None = None) -> AcceptanceTrace:
    """The trace of a finished live run with a fixed depth; its requests are in the order of admission.

    A request that an interruption cut short ran again; the attempt that finished it counts.

    Args:
        run_dir: folder of `dspark run` or `dspark compare`.
        cell: of a comparison, such as ``fixed 4/batch 16/repeat 0``; None: the only one.

    Raises:
        ValueError: no such run or cell, or one that a replay could not be exact for: not finished, depths
            that vary, a text that depends on its drafts, or limits of drafts that its files do not tell.
    """
    steps = [*read_jsonl(run_dir / "steps.jsonl")]
    name = _cell(list(dict.fromkeys(item["cell"] for item in steps)), cell, run_dir)
    config = json.loads((run_dir / "provenance.json").read_text(encoding="utf-8"))["config"]
    if config.get("record") is not None:
        raise ValueError(f"{run_dir} is of `dspark record`: read its trace.parquet, which has every position")
    depth, origin = _origin(run_dir, name)
    outputs = {item["request_id"]: item for item in _of_cell(run_dir / "outputs.jsonl", name)}
    attempts = {each: done["attempt"] for each, done in outputs.items()}
    rounds: dict[str, list[RowRecord]] = {}
    for item in (item for item in steps if item["cell"] == name):
        for each in item["tokens"]:  # first tokens of one step are in the order of admission
            if attempts.get(each) == item["attempt"]:
                rounds.setdefault(each, [])
        for row in step_from_json(item).rows:
            if attempts.get(row.request_id) == item["attempt"]:
                rounds[row.request_id].append(row)
    requests = [_Visited(rows, outputs[each], depth, config) for each, rows in rounds.items()]
    return AcceptanceTrace(
        depth=depth,
        request_ids=tuple(rounds),
        prompt_tokens=np.array([request.prompt_tokens for request in requests], dtype=np.int64),
        output_tokens=np.array([request.output_tokens for request in requests], dtype=np.int64),
        max_tokens=np.array([request.max_tokens for request in requests], dtype=np.int64),
        drafted=np.concatenate([request.column("drafted") for request in requests]),
        accepted=np.concatenate([request.column("accepted") for request in requests]),
        origin={**origin, "run": run_dir.name, "cell": name},
        visited_only=True,
    )


class _Visited:
    """One request's rounds, checked: they follow each other to its end, and drafts had the depth.

    Raises:
        ValueError: they do not.
    """

    def __init__(
        self, rows: list[RowRecord], output: Mapping[str, Any], depth: int, config: Mapping[str, Any]
    ) -> None:
        name = output["request_id"]
        self.output_tokens = len(output["token_ids"])
        if not rows:
            raise ValueError(
                f"request {name!r} ended with its first token, so no round tells how long its prompt is: "
                "leave it out of the run, or make a trace with `dspark record`"
            )
        self._rows, self.prompt_tokens = rows, rows[0].context - 1
        self.max_tokens = self.prompt_tokens + config["sampling"]["max_new_tokens"]
        if config["engine"]["max_tokens_per_row"] is not None:
            self.max_tokens = min(self.max_tokens, config["engine"]["max_tokens_per_row"])
        if output["finish_reason"] == FinishReason.CONTEXT:
            self.max_tokens = self.prompt_tokens + self.output_tokens
        self._check_whole(name)
        for row in rows:
            usable = min(depth, max(self.max_tokens - row.context - 1, 0))
            if (row.planned, row.allowed, row.verified) != (depth, usable, row.drafted):
                raise ValueError(
                    f"request {name!r} at {row.context} tokens must have been allowed drafts of {usable} by "
                    f"the depth of {depth} and its token limit, and verified whole, got planned "
                    f"{row.planned}, allowed {row.allowed}, drafted {row.drafted}, verified {row.verified}: "
                    "a context or a cap cut them, which a replay does not know"
                )

    def _check_whole(self, name: str) -> None:
        context = self.prompt_tokens + 1
        for row in self._rows:
            if row.context != context:
                break
            context += row.emitted
        if context != self.prompt_tokens + self.output_tokens:
            raise ValueError(f"steps.jsonl lacks rounds of request {name!r}: the run's files are damaged")

    def column(self, field: str) -> np.ndarray:
        """Int64 [n - 1]: the field of the round at each position; 0 where none began."""
        values = np.zeros(self.output_tokens - 1, dtype=np.int64)
        for row in self._rows:
            values[row.context - self.prompt_tokens - 1] = getattr(row, field)
        return values


def _cell(found: list[str], asked: str | None, run_dir: Path) -> str:
    if not found:
        raise ValueError(f"{run_dir} has no steps: give the folder of a `dspark run` or `dspark compare`")
    if asked is None and len(found) == 1:
        return found[0]
    if asked not in found:
        raise ValueError(f"{run_dir} has the cells {', '.join(found)}, got {asked!r}: name one of them")
    return asked


def _of_cell(path: Path, cell: str) -> list[dict[str, Any]]:
    return [item for item in read_jsonl(path) if item["cell"] == cell]


def _origin(run_dir: Path, cell: str) -> tuple[int, dict[str, Any]]:
    """The run's depth, and where its trace comes from.

    Raises:
        ValueError: the cell has not ended, or cannot be replayed exactly.
    """
    ended = [item["row"] for item in _of_cell(run_dir / "cells.jsonl", cell)]
    if not ended:  # `dspark run` has one cell, and its row in the summary alone
        summary = read_summary(run_dir)
        if not summary["complete"] or len(summary["rows"]) != 1:
            raise ValueError(f"the cell {cell!r} in {run_dir} has not ended: resume it with resume=true")
        ended = summary["rows"]
    row = ended[0]
    fixed = re.fullmatch(r"fixed (\d+)", row["policy"])
    if fixed is None:
        raise ValueError(
            f"a live run tells of positions that its own depths lead to, so only one with a fixed depth can "
            f"be replayed, got {row['policy']!r}: make a trace with `dspark record`"
        )
    if not row["lossless"] or (row["verification"] not in INDEPENDENT and row["temperature"] > 0):
        raise ValueError(
            f"under verification {row['verification']} at temperature {row['temperature']:g} the text "
            "depends on the drafts, so that a replay is not the run: take greedy or coupled, or temperature 0"
        )
    return int(fixed[1]), {name: row[name] for name in _ORIGIN}
