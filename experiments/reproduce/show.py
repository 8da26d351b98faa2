"""Tables on the console: what there is, and how it came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from experiments.reproduce.claims import Status, counts
from experiments.reproduce.registry import settings_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from experiments.reproduce.experiment import Experiment
    from experiments.reproduce.result import Result


def show_list(console: Console, experiments: Sequence[Experiment]) -> None:
    """Prints a row an experiment, and the settings they have."""
    table = Table(title="experiments")
    for name in ("name", "question", "paper", "minutes", "needs"):
        table.add_column(name, justify="right" if name == "minutes" else "left", overflow="fold")
    for experiment in experiments:
        needs = "; ".join(need.what for need in experiment.needs) or "nothing more"
        cells = (experiment.name, experiment.question, experiment.source, f"{experiment.minutes:g}", needs)
        table.add_row(*cells)
    console.print(table)
    total = sum(experiment.minutes for experiment in experiments)
    console.print(f"all together: at most {total:g} minutes are expected of 2 cores")
    for setting in settings_of(experiments).values():
        default = "" if setting.default is None else f"; by default {setting.default}"
        console.print(f"{setting.name}=VALUE: {setting.what}{default}", markup=False, soft_wrap=True)


def show_results(console: Console, results: Sequence[Result]) -> None:
    """Prints a row a result, and why some have no numbers."""
    table = Table(title="reproduction" + (", shortened: these are no results" if results[0].quick else ""))
    table.add_column("name")
    table.add_column("status")
    for status in Status:
        table.add_column(status.value, justify="right")
    table.add_column("seconds", justify="right")
    for result in results:
        found = counts(result.claims)
        numbers = [str(found.get(status, 0)) for status in Status]
        table.add_row(result.name, result.verdict, *numbers, f"{result.seconds:.1f}")
    console.print(table)
    for result in results:
        if not result.is_finished:
            console.print(f"{result.name}: {result.summary}", markup=False, soft_wrap=True)
