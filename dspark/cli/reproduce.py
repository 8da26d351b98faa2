"""`dspark reproduce`: the experiments of the repository, and one report of what came out.

Experiments depend on the package and are not installed with it. So they are looked for at run time, in
the checkout that the package lies in.
"""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import dspark
from dspark.cli.plain import PlainParser, plain_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

CHECKOUT = Path(dspark.__file__).resolve().parents[1]
COMMAND, REGISTRY = "experiments.reproduce.command", "experiments.reproduce.registry"

EXAMPLES = """\
what to run:
  list             the experiments, their papers, what they need, and their settings
  all              every experiment that this machine can run
  NAME             one or more of them; the number is enough
  NAME=VALUE       a setting that `list` shows

  dspark reproduce list
  dspark reproduce all                       at most 45 minutes on 2 cores; the report comes with every result
  dspark reproduce e03 e11                   two of them, seconds
  dspark reproduce e10 traces=DIR            with the published traces in DIR
  dspark reproduce all --quick --out outputs/smoke    that everything runs; its numbers are no results

what comes out:
  OUT/report.html  one file with every claim (paper, ours, status), tables and pictures; open it in a browser
  OUT/NAME/        result.json, pictures, and what the experiment wrote

statuses, by rule from the numbers:
  reproduced       within the tolerance of the paper's number
  shape only       another number, or none in the paper, but what it says about it holds
  not reproduced   neither
  not run here     something is missing on this machine; the report says what

What is in OUT already, of the same sources and settings, is not run again (--again does). Ctrl-C loses
nothing that has ended: the same command goes on. Exit codes: 0 done, 1 an experiment failed, 2 a mistake in
what was asked for, 130 interrupted.
"""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark reproduce ARGUMENTS`."""
    parser = PlainParser(
        "reproduce",
        description="dspark reproduce: numbers of papers, and what comes out here; one HTML report.",
        examples=EXAMPLES,
    )
    add = parser.add_argument
    add("words", nargs="+", metavar="WHAT", help="list, all, names of experiments, and settings")
    add("--out", type=Path, default=Path("outputs/reproduce"), metavar="DIR", help="default: %(default)s")
    add("--quick", action="store_true", help="shortened to seconds, on something tiny")
    add("--again", action="store_true", help="run also what is there already")
    typed = shlex.join(["dspark", "reproduce", *arguments])
    return plain_command(parser, arguments or ["--help"], lambda options: _execute(options, typed))


def _execute(options: argparse.Namespace, typed: str) -> int:
    if not _is_checkout():
        raise ValueError(
            f"the experiments are in a checkout of the repository, and {CHECKOUT} is none: clone the "
            "repository, run `make setup` there, and then its .venv/bin/dspark"
        )
    # by name: no import of the package may depend on the experiments
    execute = importlib.import_module(COMMAND).execute
    return execute(options.words, out=options.out, quick=options.quick, again=options.again, command=typed)


def experiment_names() -> list[str]:
    """The names that `dspark reproduce` takes; none where the package lies in no checkout."""
    return importlib.import_module(REGISTRY).names() if _is_checkout() else []


def _is_checkout() -> bool:
    return (CHECKOUT / "experiments" / "reproduce" / "command.py").is_file()
