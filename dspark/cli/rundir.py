"""The folder of a run: what is written while it goes, and how a stopped run is taken up again.

Files: ``provenance.json``, ``steps.jsonl`` (a step a line), ``outputs.jsonl`` (a finished request a
line), ``cells.jsonl`` (a finished cell of a comparison a line, written after its steps and outputs,
so that it is the mark of their being whole), ``summary.json``, ``figures/``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from dspark.types import Completion, Request, StepRecord

RESULTS = (
    *("provenance.json", "steps.jsonl", "outputs.jsonl", "cells.jsonl", "summary.json", "figures"),
    *("observations.jsonl", "calibration.json", "temperatures.json"),  # of `calibrate`
    *("samples.jsonl", "profile.json"),  # of `profile`
    "trace.parquet",  # of `record`
    "replay.json",  # of `replay`
    *("curves.jsonl", "data.json", "checkpoints", "drafter"),  # of `train`
)
_FREE_ON_RESUME = ("resume", "tracker")


class RunDir:
    """A run's folder, open for writing; a context manager. Build with ``open_run_dir``."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path, self.attempt = path, attempt
        self._steps = JsonlWriter(path / "steps.jsonl")
        self._outputs = JsonlWriter(path / "outputs.jsonl")
        self._cells = JsonlWriter(path / "cells.jsonl")

    def __enter__(self) -> RunDir:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in (self._steps, self._outputs, self._cells):
            writer.close()

    def write_step(self, cell: str, step: StepRecord) -> None:
        """Append a step, and the outputs of the requests that ended in it."""
        self._steps.write({"cell": cell, "attempt": self.attempt, **step_to_json(step)})
        for chunk in step.chunks:
            if chunk.completion is not None:
                done = completion_to_json(chunk.completion, is_modelled=step.is_modelled)
                self._outputs.write({"cell": cell, "attempt": self.attempt, **done})

    def write_cell(self, cell: str, row: Mapping[str, Any]) -> None:
        """Append a finished cell with its summary row."""
        self._cells.write({"cell": cell, "row": dict(row)})

    def write_summary(self, summary: Mapping[str, Any]) -> Path:
        """The path of ``summary.json``, replaced in one stroke."""
        path = self.path / "summary.json"
        write_json(path, dict(summary))
        return path

    def finished_cells(self) -> dict[str, dict[str, Any]]:
        """Summary rows by cell."""
        return {item["cell"]: item["row"] for item in read_jsonl(self.path / "cells.jsonl")}

    def drop_unfinished_cells(self) -> None:
        """Remove the steps and outputs of cells that did not end; they will run again."""
        finished = self.finished_cells()
        for writer in (self._steps, self._outputs):
            writer.close()
        for name in ("steps.jsonl", "outputs.jsonl"):
            keep_lines(self.path / name, lambda item: item["cell"] in finished)
        self._steps = JsonlWriter(self.path / "steps.jsonl")
        self._outputs = JsonlWriter(self.path / "outputs.jsonl")

    def completions(self, cell: str, requests: Iterable[Request]) -> dict[str, Completion]:
        """The finished requests of a cell by id, in request order."""
        return {name: done for name, (_, done) in self._finished(cell, requests).items()}

    def kept_steps(self, cell: str, requests: Iterable[Request]) -> Iterator[StepRecord]:
        """The steps of a cell, without the rows of requests that an interruption cut short.

        Such a request runs again from its prompt, so only the attempt that finished it counts.
        """
        attempts = {name: attempt for name, (attempt, _) in self._finished(cell, requests).items()}
        for item in read_jsonl(self.path / "steps.jsonl"):
            if item["cell"] == cell:
                rows = item["rows"]
                attempt, names = item["attempt"], rows["request_id"]
                keep = [i for i, name in enumerate(names) if attempts.get(name) == attempt]
                kept = {column: [values[i] for i in keep] for column, values in rows.items()}
                yield step_from_json({**item, "rows": kept})

    def _finished(self, cell: str, requests: Iterable[Request]) -> dict[str, tuple[int, Completion]]:
        """Attempt and completion of each finished request, in request order."""
        lines = {
            item["request_id"]: item
            for item in read_jsonl(self.path / "outputs.jsonl")
            if item["cell"] == cell
        }
        return {
            request.request_id: (
                lines[request.request_id]["attempt"],
                completion_from_json(lines[request.request_id], request.prompt_ids),
            )
            for request in requests
            if request.request_id in lines
        }


def open_run_dir(path: Path, origin: Mapping[str, Any], *, resume: bool) -> RunDir:
    """The folder, ready to be written to: new, or where a stopped run left it; see :func:`claim_folder`."""
    attempt = claim_folder(path, origin, resume=resume)
    for name in ("steps.jsonl", "outputs.jsonl", "cells.jsonl"):
        drop_torn_line(path / name)
    return RunDir(path, attempt=attempt)


def claim_folder(path: Path, origin: Mapping[str, Any], *, resume: bool) -> int:
    """How often the run in the folder was resumed; ``provenance.json`` is written.

    Results of an earlier run that is not resumed are moved to ``previous-N`` inside the folder.

    Args:
        path: the folder, made if missing.
        origin: the provenance of this start.
        resume: go on with the run in the folder.

    Raises:
        ValueError: there is nothing to resume, or it had another configuration.
    """
    path.mkdir(parents=True, exist_ok=True)
    if not resume:
        _move_aside(path)
        write_json(path / "provenance.json", {"schema": 1, **origin, "resumed": []})
        return 0
    recorded = recorded_origin(path)
    check_same_config(recorded["config"], origin["config"], path)
    recorded["resumed"].append({key: value for key, value in origin.items() if key != "config"})
    write_json(path / "provenance.json", recorded)
    return len(recorded["resumed"])


def recorded_origin(path: Path) -> dict[str, Any]:
    """The provenance of the run in a folder.

    Raises:
        ValueError: there is none.
    """
    file = path / "provenance.json"
    if not file.is_file():
        raise ValueError(
            f"nothing to resume in {path}: it holds no run; give the hydra.run.dir of one that was stopped"
        )
    return json.loads(file.read_text(encoding="utf-8"))


def check_same_config(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> None:
    """Nothing, if a run with one configuration can go on with the other.

    Raises:
        ValueError: a setting differs that changes results.
    """
    before, now = _flat(old), _flat(new)
    for key in {**before, **now}:
        if before.get(key) != now.get(key) and key.split(".")[0] not in _FREE_ON_RESUME:
            raise ValueError(
                f"the run in {path} had {key}={before.get(key)!r}, and resume=true got {now.get(key)!r}: "
                "give it the same settings, or start a new folder"
            )


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _move_aside(path: Path) -> None:
    """Put earlier results into ``previous-N``, the first free N."""
    earlier = [path / name for name in RESULTS if (path / name).exists()]
    if not earlier:
        return
    number = 1
    while (path / f"previous-{number}").exists():
        number += 1
    folder = path / f"previous-{number}"
    folder.mkdir()
    for item in earlier:
        item.rename(folder / item.name)
