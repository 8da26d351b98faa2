"""Runs experiments one after another; each is on disk when it ends, and what is there is not run again."""

from __future__ import annotations

import json
import shutil
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dspark.cli.provenance import surroundings
from dspark.metrics.trace import write_json
from experiments.reproduce.experiment import Context, Experiment, Outcome
from experiments.reproduce.key import result_key
from experiments.reproduce.result import Result, read_result, write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from experiments.reproduce.claims import Claim

ASKED = "asked.json"
"""In an experiment's folder from its start: the key of what is being run there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run."""

    out: Path  # each experiment gets a folder of its name in it
    command: str  # as typed, for the records
    quick: bool = False
    again: bool = False  # run also what is there already
    settings: Mapping[str, str]


def run_experiments(
    experiments: Sequence[Experiment],
    options: Options,
    console: Console,
    finished: Callable[[Result], None],
) -> list[Result]:
    """The results in order. One that fails is a result too, and the others go on.

    Args:
        experiments: what to run.
        options: how.
        console: progress.
        finished: called with each result as soon as it is on disk.

    Raises:
        ValueError: a folder holds something that is not an experiment's.
        KeyboardInterrupt: results that were finished are on disk; the same call goes on behind them.
    """
    for experiment in experiments:
        _check_folder(options.out / experiment.name)
    origin = _origin()
    results = []
    for number, experiment in enumerate(experiments, start=1):
        place = f"{experiment.name} ({number} of {len(experiments)})"
        result = _run(experiment, options, console, origin, place)
        console.print(f"{place}: {result.verdict}: {result.summary}", markup=False)
        results.append(result)
        finished(result)
    return results


def _run(
    experiment: Experiment, options: Options, console: Console, origin: dict[str, Any], place: str
) -> Result:
    folder = options.out / experiment.name
    context = Context(
        folder=folder,
        console=console,
        quick=options.quick,
        settings={s.name: options.settings.get(s.name, s.default) for s in experiment.settings},
    )
    key = result_key(experiment, context)
    if not options.again:
        there = read_result(folder)
        if there is not None and there.key == key and there.is_finished:
            console.print(f"{place}: is there already, of {there.started_at}", markup=False)
            return there
    _claim_folder(folder, key, again=options.again)
    console.print(f"{place}: {experiment.question}", markup=False)
    started_at, start_s = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    outcome, not_run, error = None, _first_missing(experiment, context), None
    if not_run is None:
        try:
            outcome = experiment.run(context)
            _check_files(outcome, folder)
        except Exception:
            outcome, error = None, traceback.format_exc()
    result = Result(
        name=experiment.name,
        title=experiment.title,
        question=experiment.question,
        source=experiment.source,
        key=key,
        quick=options.quick,
        settings=dict(context.settings),
        command=options.command,
        started_at=started_at,
        seconds=time.perf_counter() - start_s,
        origin=origin,
        claims=_left_out(experiment, not_run or "the experiment failed")
        if outcome is None
        else outcome.claims,
        figures=() if outcome is None else outcome.figures,
        notes=() if outcome is None else outcome.notes,
        tables=() if outcome is None else outcome.tables,
        not_run=not_run,
        error=error,
    )
    write_result(folder, result)
    return result


def _origin() -> dict[str, Any]:
    import torch

    return {**surroundings(), "threads": torch.get_num_threads()}


def _first_missing(experiment: Experiment, context: Context) -> str | None:
    return next((why for need in experiment.needs if (why := need.missing(context)) is not None), None)


def _left_out(experiment: Experiment, why: str) -> tuple[Claim, ...]:
    return tuple(claim.left_out(why) for claim in experiment.claims)


def _check_files(outcome: Outcome, folder: Path) -> None:
    """Raises for a figure that was not drawn, here and not in the report."""
    for figure in outcome.figures:
        if not (folder / figure.file).is_file():
            raise FileNotFoundError(f"the figure {figure.file} was promised and is not in {folder}")


def _check_folder(folder: Path) -> None:
    """Raises for a folder that must not be emptied."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / ASKED).is_file():
        raise ValueError(
            f"{folder} holds something else than an experiment: remove it, or give another --out"
        )


def _claim_folder(folder: Path, key: str, *, again: bool) -> None:
    """Make the folder; empty, unless a run of the same key ended early in it, which then goes on."""
    path = folder / ASKED
    if path.is_file():
        if not again and json.loads(path.read_text(encoding="utf-8"))["key"] == key:
            return
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"key": key})
