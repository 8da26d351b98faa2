"""The command `dspark`: finds the command, and turns what goes wrong into one line and an exit code.

Exit codes: 0 done, 1 a bug or a broken promise, 2 a mistake in what was asked for, 130 interrupted.
Nothing heavy is imported before a command is known.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from typing import TYPE_CHECKING

from dspark import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": ("one policy on one engine", "dspark run policy=confidence workload.num_requests=8"),
    "compare": (
        "policies x batch sizes on the same prompts, ratio to plain decoding",
        "dspark compare 'compare.policies=[fixed 0,fixed 4]' 'compare.batch_sizes=[1,8]'",
    ),
    "calibrate": (
        "how right an estimator of acceptance is by position, and temperatures that mend it",
        "dspark calibrate calibrate.estimator=top1 workload.num_requests=32",
    ),
    "record": (
        "what would be drafted at every position, and how much of it is right: for replays",
        "dspark record drafter=ngram record.depth=7",
    ),
    "profile": (
        "seconds of a step by rows, tokens, context and depth, for policies that need costs",
        "dspark profile engine.num_threads=2",
    ),
    "audit": (
        "is a policy lossless? exact output laws on toy models, or a counterexample",
        "dspark audit policy=prefix_scheduler",
    ),
    "train": (
        "a drafter for a target, on the target's own answers",
        "dspark train experiment=smollm2_dspark prompts.folder=DIR",
    ),
    "roofline": (
        "how fast a model could be on a machine, and how many tokens a pass should hold",
        "dspark roofline target=qwen3_8b hardware=h200",
    ),
    "tune": (
        "the depth of every batch size, from a trace and a machine's costs",
        "dspark tune trace=outputs/trace/trace.parquet cost=published",
    ),
    "replay": (
        "policies on a trace next to every fixed depth and to hindsight: speeds and headroom captured",
        "dspark replay trace=outputs/trace/trace.parquet 'policies=[ema,batch_table]' cost=published",
    ),
    "export": (
        "a schedule, temperatures, a profile or a run in the syntax of another program",
        "dspark export to=vllm export.schedule=FILE export.method=eagle3 export.model=ID",
    ),
    "reproduce": (
        "numbers of papers and what comes out here: experiments, and one report",
        "dspark reproduce list",
    ),
    "report": (
        "the results of many runs, such as a sweep's: one table, one frame, one figure",
        "dspark report outputs/run-sweep",
    ),
    "doctor": (
        "is this machine ready? packages, threads, load, memory, device, model; and what to do",
        "dspark doctor",
    ),
    "completion": (
        "TAB in your shell completes commands, groups, options and settings",
        'eval "$(dspark completion bash)"',
    ),
}
"""What each command does, and an example; its code is the module of its name beside this file."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of `dspark ARGV`.

    Args:
        argv: arguments without the program's name; None takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"dspark {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        print(f"dspark: error: no command {name!r}: {hint}there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return importlib.import_module(f"dspark.cli.{name}").command(rest)


def _overview() -> str:
    """The help that `dspark` alone prints."""
    lines = ["dspark: study and choose the depth of speculative decoding.", "", "Commands:"]
    for name, (what, example) in COMMANDS.items():
        lines += [f"  dspark {name:<10} {what}", f"      {example}"]
    lines += [
        "",
        "Settings are Hydra overrides: GROUP=OPTION and GROUP.KEY=VALUE.",
        "  dspark run --help      groups, settings and examples; the same for every command",
        "  dspark run --cfg job   every setting and its value",
        "",
        "Start here:",
        "  dspark compare debug=smoke tracker=none    seconds, on a tiny random model",
        "  dspark compare                             minutes, SmolLM2-135M on this machine",
    ]
    return "\n".join(lines)
