"""`dspark tune`: a schedule of depths from a trace and a cost model, and what it gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, launch
from dspark.cli.trace_policies import trace_policies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.analysis.schedule import Schedule
    from dspark.analysis.tuning import TunedSize
    from dspark.config.tune import TuneCommand
    from dspark.cost.base import CostModel
    from dspark.policies.base import Policy

SCHEMA = 1
"""The version of ``tuning.json``."""
TUNED = "tuned"
"""The schedule's name among policies."""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark tune ARGUMENTS`."""
    return launch("tune", arguments, _job)


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.config.tune import parse_tune

    config = parse_tune(invocation.plain)
    from dspark.analysis.replay.files import read_trace
    from dspark.analysis.tuning import schedule_of, tune
    from dspark.config.build import build_cost, named

    trace = read_trace(config.trace.expanduser())
    cost = build_cost(config.cost)
    assert cost is not None, "checked by the configuration"
    others = trace_policies(config.policies, invocation, trace, cost)
    sizes = named("tune", tune, trace, cost, config.tune)
    schedule = schedule_of(sizes, config.tune, **_origin(invocation, config, trace))
    rows = _replayed(trace, cost, config, schedule, others)
    _write(invocation, config, schedule, sizes, rows)
    _show(invocation, config, trace, schedule, sizes, rows)
    return 0


def _origin(invocation: Invocation, config: TuneCommand, trace: AcceptanceTrace) -> dict[str, str | None]:
    """What a schedule's file says of where it comes from."""
    from dspark.cli.provenance import command_line

    settings = config.cost.settings
    return {
        "target": trace.origin.get("target"),
        "drafter": trace.origin.get("drafter"),
        "cost": str(settings.get("name") or settings.get("path") or config.cost.target),
        "command": command_line(invocation),
    }


def _replayed(
    trace: AcceptanceTrace,
    cost: CostModel,
    config: TuneCommand,
    schedule: Schedule,
    others: Mapping[str, Policy],
) -> list[dict[str, Any]]:
    """A row a policy and batch size, with modelled speeds; told on stderr, since it may take minutes."""
    from rich.progress import track

    from dspark.analysis.replay.run import replay
    from dspark.cli.console import stderr
    from dspark.policies.batch_table import BatchTable
    from dspark.policies.fixed import Fixed

    max_depth = trace.depth if config.tune.max_depth is None else config.tune.max_depth
    policies: dict[str, Policy] = {f"fixed {depth}": Fixed(depth=depth) for depth in range(max_depth + 1)}
    policies |= {TUNED: BatchTable(ranges=[list(entry) for entry in schedule.depths]), **others}
    cells = [(name, size) for size in config.tune.batch_sizes for name in policies]
    rows = []
    for name, size in track(cells, description="replay", console=stderr(), transient=True):
        # enough requests that the batch is full most of the time
        copies = trace.of([i % trace.num_requests for i in range(max(trace.num_requests, 4 * size))])
        done = replay(copies, policies[name], batch_size=size, cost=cost, prefill_chunk=1 << 30)
        rows.append(
            {
                "policy": name,
                "batch_size": size,
                "modelled_decode_tokens_per_s": done.decode_tokens_per_s(),
                "modelled_tokens_per_s": done.tokens_per_s(),
            }
        )
    return rows


def _write(
    invocation: Invocation,
    config: TuneCommand,
    schedule: Schedule,
    sizes: Sequence[TunedSize],
    rows: list[dict[str, Any]],
) -> None:
    from dataclasses import asdict

    from dspark.metrics.trace import write_json

    out = config.out.expanduser()
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, schedule.to_json())
    found = {"schema": SCHEMA, "schedule": schedule.to_json(), "sizes": [asdict(size) for size in sizes]}
    write_json(invocation.run_dir / "tuning.json", {**found, "rows": rows})


def _show(
    invocation: Invocation,
    config: TuneCommand,
    trace: AcceptanceTrace,
    schedule: Schedule,
    sizes: Sequence[TunedSize],
    rows: list[dict[str, Any]],
) -> None:
    """Table, figure, and where the schedule is."""
    from dspark.analysis.figures import draw_throughput
    from dspark.cli.console import stdout

    cost = schedule.cost or "the cost model"
    console = stdout()
    console.print(_table(sizes, rows, title=f"{trace.num_requests} requests, seconds of {cost}"))
    drawn = [{**row, "cost_model": cost} for row in rows]
    figure = draw_throughput(
        drawn,
        invocation.run_dir / "figures" / "tuning.png",
        title=f"replay of {config.trace.name}",
        baseline="fixed 0",
    )
    for low, high, depth in schedule.depths:
        console.print(f"batch size {low} to {high}: depth {depth}", markup=False)
    console.print(f"schedule: {config.out}\nfigure: {figure}", markup=False, soft_wrap=True)


def _table(sizes: Sequence[TunedSize], rows: list[dict[str, Any]], *, title: str) -> Table:
    """Chosen and best depth, and the schedule's replayed speed over those of its rivals."""
    from rich.table import Table

    speed = {(row["policy"], row["batch_size"]): row["modelled_tokens_per_s"] for row in rows}
    names = list(dict.fromkeys(row["policy"] for row in rows))
    fixed = [name for name in names if name.startswith("fixed ")]
    others = [name for name in names if name not in (*fixed, TUNED)]
    # the one depth that does best over all batch sizes: what a schedule is up against
    overall = max(fixed, key=lambda name: _log_of_product([speed[name, size.batch_size] for size in sizes]))
    table = Table(title=title)
    columns = ("batch", "chosen", "best", "over plain", f"over {overall}", "over best here")
    for name in (*columns, *(f"over {name}" for name in others)):
        table.add_column(name, justify="right")
    for size in sizes:
        ours = speed[TUNED, size.batch_size]
        rivals = [speed[name, size.batch_size] for name in ("fixed 0", overall)]
        rivals += [max(speed[name, size.batch_size] for name in fixed)]
        rivals += [speed[name, size.batch_size] for name in others]
        ratios = [f"{ours / rival:.2f}×" for rival in rivals]
        table.add_row(str(size.batch_size), str(size.chosen), str(size.best), *ratios)
    return table


def _log_of_product(values: Sequence[float]) -> float:
    import math

    return sum(map(math.log, values))
