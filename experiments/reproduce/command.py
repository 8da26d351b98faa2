"""What `dspark reproduce` does with its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.cli import console as consoles
from dspark.cli.exit_codes import EXIT_BUG, EXIT_INTERRUPTED
from experiments.reproduce.registry import chosen, names, parse_settings
from experiments.reproduce.report import write_report
from experiments.reproduce.result import Result, read_result
from experiments.reproduce.runner import Options, run_experiments
from experiments.reproduce.show import show_list, show_results

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REPORT = "report.html"


def execute(words: Sequence[str], *, out: Path, quick: bool, again: bool, command: str) -> int:
    """The exit code: 0, 1 if an experiment failed, 130 if interrupted.

    Args:
        words: ``list``, or ``all`` and names of experiments, and ``NAME=VALUE``.
        out: folder of the results.
        quick: shorten everything.
        again: run also what is there already.
        command: as typed.

    Raises:
        ValueError: a word that means nothing, or a folder that is not an experiment's.
    """
    wanted = [word for word in words if "=" not in word]
    values = [word for word in words if "=" in word]
    if "list" in wanted:
        if len(words) > 1:
            raise ValueError(f"`list` goes alone, got {' '.join(words)!r}")
        show_list(consoles.stdout(), chosen(["all"]))
        return 0
    if not wanted:
        raise ValueError(f"say what to run: all, or some of {', '.join(names())}; got only settings")
    experiments = chosen(wanted)
    settings = parse_settings(values, experiments)
    options = Options(out=out, command=command, quick=quick, again=again, settings=settings)
    page = _Page(out=out, quick=quick)
    try:
        results = run_experiments(experiments, options, consoles.stderr(), page.add)
    except KeyboardInterrupt:
        consoles.stderr().print("interrupted; what has ended is kept, and the same command goes on behind it")
        return EXIT_INTERRUPTED
    console = consoles.stdout()
    show_results(console, results)
    console.print(f"report: {out / REPORT}", markup=False, soft_wrap=True)
    return EXIT_BUG if any(result.error is not None for result in results) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The report, written anew with every result; those of earlier calls in the same folder stay on it."""

    out: Path
    quick: bool

    def add(self, _: Result) -> None:
        """Read what there is, and write it."""
        found = [read_result(self.out / name) for name in names()]
        results = [result for result in found if result is not None and result.quick == self.quick]
        write_report(self.out / REPORT, results, self.out)
