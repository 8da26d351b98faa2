"""The results of many runs as one frame: a row a summary row, with the settings in which the runs differ."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import yaml

from dspark.analysis.frames import read_summary
from dspark.metrics.time_fields import by_modelled_clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

State = Literal["complete", "unfinished", "no results"]
COMPLETE: State = "complete"
IDENTITY = ("run", "command", "state", "clock")
"""The first columns of the frame."""

_MARKS = ("summary.json", "provenance.json", ".hydra")
_WITHIN_A_RUN = ("previous-", "checkpoints", "drafter", "figures", "wandb")
_NO_RESULT = ("hydra", "tracker", "resume")
"""Groups of settings that change no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run's folder, read."""

    path: Path
    command: str | None  # run, compare, ...; None: not told
    state: State
    overrides: tuple[str, ...]  # keys that were set on the command line
    settings: dict[str, Any]  # all of them, and the options of groups
    rows: tuple[dict[str, Any], ...]
    began_s: float | None  # seconds of the epoch


def collect(roots: Sequence[Path]) -> pd.DataFrame:
    """One row a summary row of all runs below the folders; an unfinished run without results has one too.

    Columns: ``run``, ``command``, ``state``, ``clock``, a column a setting in which the runs differ, and
    the plain fields of the summary rows. Fields that hold time are named by their clock, so that wall
    and modelled seconds never share a column.

    Raises:
        ValueError: a folder is not there, or holds no run; a summary of another version.
    """
    return frame_of(lines_of(read_runs(roots)))


def read_runs(roots: Sequence[Path]) -> list[RunResult]:
    """The runs in and below the folders, in the order of their paths.

    Raises:
        ValueError: see :func:`collect`.
    """
    folders: dict[Path, Path] = {}
    for root in roots:
        if not root.is_dir():
            raise ValueError(
                f"there is no folder {str(root)!r}: give the folder of a run, a sweep, or of many"
            )
        found = _run_folders(root)
        if not found:
            raise ValueError(
                f"{root} holds no run: give the hydra.run.dir or hydra.sweep.dir of a command, or outputs"
            )
        folders |= {path.resolve(): path for path in found}
    return [_read(path) for path in folders.values()]


def differing(runs: Sequence[RunResult]) -> list[str]:
    """The settings that were set for some run and are not the same in all."""
    keys = dict.fromkeys(key for run in runs for key in run.overrides)
    return [key for key in keys if len({repr(run.settings.get(key)) for run in runs}) > 1]


def frame_of(lines: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The frame of :func:`collect`; whole numbers stay whole beside rows that lack them."""
    return pd.DataFrame([dict(line) for line in lines]).convert_dtypes()


def lines_of(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """The rows of :func:`collect`, as plain values."""
    keys = differing(runs)
    base = os.path.commonpath([run.path.resolve().parent for run in runs])
    lines = []
    for run in runs:
        name = os.path.relpath(run.path.resolve(), base)
        settings = {key: _plain(run.settings.get(key)) for key in keys}
        for row in run.rows or ({},):
            clock = ("modelled" if by_modelled_clock(row) else "wall") if row else None
            fields = {key: value for key, value in row.items() if not isinstance(value, list | dict)}
            identity = zip(IDENTITY, (name, run.command, run.state, clock), strict=True)
            lines.append({**dict(identity), **settings, **fields})
    return lines


def num_overlapping(runs: Iterable[RunResult]) -> int:
    """How many runs began while another one was surely still measuring wall seconds.

    A lower bound: loading is not counted, and resumed runs, whose time is that of several starts, are
    left out. On one machine such runs slow each other down.
    """
    spans = sorted(
        (run.began_s, run.began_s + sum(map(_wall_s, run.rows)))
        for run in runs
        if run.began_s is not None and any("wall_s" in row for row in run.rows)
    )
    num, latest_s = 0, float("-inf")
    for began_s, ended_s in spans:
        num += began_s + 1 < latest_s  # a start is known to the second
        latest_s = max(latest_s, ended_s)
    return num


def _wall_s(row: dict[str, Any]) -> float:
    return sum(repeat.get("wall_s") or 0.0 for repeat in row.get("repeats") or [row])


def _run_folders(root: Path) -> list[Path]:
    """Folders below the root, and itself, in which a run has left something."""
    found = []
    for folder, names, files in os.walk(root):
        if any(mark in names or mark in files for mark in _MARKS):
            found.append(Path(folder))
        names[:] = sorted(name for name in names if not name.startswith((".", *_WITHIN_A_RUN)))
    return found


def _read(path: Path) -> RunResult:
    origin = _json(path / "provenance.json")
    hydra = _yaml(path / ".hydra" / "hydra.yaml").get("hydra", {})
    config = _yaml(path / ".hydra" / "config.yaml") or origin.get("config", {})
    summary = read_summary(path) if (path / "summary.json").is_file() else {}
    rows = tuple(summary.get("rows", ()))
    state: State = "complete" if summary.get("complete") else "unfinished" if rows else "no results"
    began = origin.get("started_at") if not origin.get("resumed") else None
    return RunResult(
        path=path,
        command=hydra.get("job", {}).get("config_name") or _command(origin, summary),
        state=state,
        overrides=_overridden(hydra),
        settings={**_flat(config), **hydra.get("runtime", {}).get("choices", {})},
        rows=rows,
        began_s=None if began is None else datetime.fromisoformat(began).timestamp(),
    )


def _command(*told: dict[str, Any]) -> str | None:
    """The second word of the recorded command line."""
    lines = [shlex.split(item["command"]) for item in told if item.get("command")]
    return lines[0][1] if lines and len(lines[0]) > 1 else None


def _overridden(hydra: dict[str, Any]) -> tuple[str, ...]:
    overrides = hydra.get("overrides", {}).get("task", [])
    keys = [text.lstrip("+").partition("=")[0] for text in overrides if not text.startswith("~")]
    return tuple(key for key in keys if key.partition(".")[0] not in _NO_RESULT)


def _flat(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _plain(value: Any) -> Any:
    """Lists as text, so that a column holds plain values."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _yaml(path: Path) -> dict[str, Any]:
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.is_file() else {}
