"""``python -m experiments.replay_against_live``: live runs next to replays of the same policies.

Records a trace of the workload, profiles the machine, runs every policy live at every batch size, and
replays each. Depths and acceptance must be equal step for step; tokens/s are told side by side. A stage
that has ended is not run again, and one that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dspark.analysis.replay.files import read_trace
from dspark.analysis.replay.run import check_replay, replay
from dspark.cli import console as consoles
from dspark.cli.launch import EXIT_INTERRUPTED
from dspark.cost.profile_file import profile_cost
from experiments.bench.measure import machine
from experiments.replay_against_live.chart import draw
from experiments.replay_against_live.equality import first_difference
from experiments.replay_against_live.stages import (
    LiveCell,
    Stages,
    live_cells,
    live_steps,
    named_policies,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cost.base import CostModel
    from dspark.policies.base import Policy

SCHEMA = 1
POLICIES = ("fixed 0", "fixed 2", "fixed 4", "fixed 7", "batch_table", "confidence", "prefix_scheduler")
PROFILE = ("profile.rows=[1,2,4,8,16]", "profile.contexts=[64,256]", "profile.depths=[1,2,4,7,8]")
BAND = 0.05
"""Bar: the share by which modelled tokens/s may miss measured ones."""
REACHED, MISSED, REFUSED = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all is equal and within the bar, 1 if not, 2 for bad input."""
    try:
        return run(_parser().parse_args(argv), consoles.stdout())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("the same command goes on from here", file=sys.stderr)
        return EXIT_INTERRUPTED


def run(options: argparse.Namespace, console: Console) -> int:
    """Run the stages, compare, tell, write ``replay_against_live.json`` and ``.png``; the exit code.

    Raises:
        ValueError: a number out of range, a policy that is none or that the trace does not suit, or a
            stage that was refused.
    """
    for name, least in (("batch_sizes", 1), ("new_tokens", 2), ("repeats", 1)):
        value = min(options.batch_sizes) if name == "batch_sizes" else getattr(options, name)
        if value < least:
            raise ValueError(f"--{name.replace('_', '-')} must be >= {least}, got {value}")
    policies = named_policies(options.policies)
    settings = [f"sampling.max_new_tokens={options.new_tokens}", *options.settings]
    stages = Stages(out=options.out.resolve(), settings=settings)
    depth = max(policy.max_depth for policy in policies.values())
    trace = read_trace(options.trace or stages.record(max(depth, 1)))
    profile = stages.profile(options.profile)
    cost = profile_cost(profile)
    for policy in policies.values():
        check_replay(trace, policy, cost)
    live = stages.compare(options.policies, options.batch_sizes, repeats=options.repeats, profile=profile)
    rows = compared(live, trace, policies, cost)
    content = {
        "schema": SCHEMA,
        "machine": machine(),
        "settings": vars(options) | {"out": str(options.out), "trace": options.trace and str(options.trace)},
        "band": BAND,
        "rows": rows,
    }
    path = options.out / "replay_against_live.json"
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    title = f"{trace.origin.get('target', 'target')}, {trace.num_requests} requests, greedy"
    figure = draw(rows, path.with_suffix(".png"), band=BAND, title=title)
    console.print(_table(rows, title))
    for row in rows:
        if row["first_difference"] is not None:
            console.print(
                f"{row['policy']}, batch {row['batch_size']}: {row['first_difference']}", markup=False
            )
    console.print(f"written to {path} and {figure}", markup=False, soft_wrap=True)
    return REACHED if all(row["is_equal"] and row["is_within_band"] for row in rows) else MISSED


def compared(
    live: Path, trace: AcceptanceTrace, policies: Mapping[str, Policy], cost: CostModel
) -> list[dict[str, Any]]:
    """A row a policy and batch size of the live runs in the folder ``live``."""
    steps = live_steps(live)
    engine = json.loads((live / "provenance.json").read_text(encoding="utf-8"))["config"]["engine"]
    rows = []
    for (name, batch_size), cell in live_cells(live).items():
        done = replay(
            trace, policies[name], batch_size=batch_size, cost=cost, prefill_chunk=engine["prefill_chunk"]
        )
        differences = [first_difference(steps[each], done) for each in cell.names]
        rows.append(
            {
                "policy": name,
                "batch_size": batch_size,
                "num_steps": len(steps[cell.names[0]]),
                "num_row_steps": done.num_row_steps,
                "is_equal": not any(differences),
                "first_difference": next((text for text in differences if text is not None), None),
                **_speeds(cell, done.decode_tokens_per_s()),
            }
        )
    order = list(policies)
    return sorted(rows, key=lambda row: (row["batch_size"], order.index(row["policy"])))


def _speeds(cell: LiveCell, modelled: float | None) -> dict[str, Any]:
    measured = cell.median_tokens_per_s
    error = None if measured is None or modelled is None else modelled / measured - 1
    return {
        "measured_decode_tokens_per_s": measured,
        "repeats": cell.decode_tokens_per_s,
        "modelled_decode_tokens_per_s": modelled,
        "error": error,
        "is_within_band": error is not None and abs(error) <= BAND,
    }


def _table(rows: Sequence[dict[str, Any]], title: str) -> Table:
    table = Table(title=title)
    for name in ("batch", "policy", "steps", "row-steps", "equal", "measured", "modelled", "error"):
        table.add_column(name, justify="left" if name in ("policy", "equal") else "right")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(
            str(row["batch_size"]),
            row["policy"],
            str(row["num_steps"]),
            str(row["num_row_steps"]),
            "yes" if row["is_equal"] else "NO",
            _shown(row["measured_decode_tokens_per_s"], ".1f"),
            _shown(row["modelled_decode_tokens_per_s"], ".1f"),
            _shown(row["error"], "+.1%"),
            end_section=following is not None and following["batch_size"] != row["batch_size"],
        )
    return table


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.replay_against_live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        default=Path("outputs/replay_against_live"),
        help="folder of the stages and the result",
    )
    add("--policies", nargs="+", default=list(POLICIES), help=f"as in compare.policies; default: {POLICIES}")
    add("--batch-sizes", type=int, nargs="+", default=[1, 4, 16])
    add("--new-tokens", type=int, default=64, help="at most, of every request; default: 64")
    add("--repeats", type=int, default=3, help="interleaved repeats of the live runs; default: 3")
    add("--trace", type=Path, help="trace.parquet of the same requests and drafter; default: recorded now")
    add(
        "--profile",
        nargs="+",
        default=list(PROFILE),
        help=f"settings of `dspark profile`; default: {PROFILE}",
    )
    add("settings", nargs="*", help="of every command, behind --, such as drafter=block drafter.source=DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
