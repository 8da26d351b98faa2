"""`dspark replay`: policies, every fixed depth and hindsight on a trace, and how much of the room they take.

Files: ``provenance.json``, ``cells.jsonl`` (a replay a line: its row, and the part that each of the trace's
requests has in its modelled seconds, a mean over the times that it came), ``replay.json``,
``figures/replay.png``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, launch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark.analysis.replay.hindsight import Oracle
    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.config.replay import ReplayCommand
    from dspark.cost.base import CostModel
    from dspark.policies.base import Policy

    Entrants = Mapping[str, Policy | Oracle]

SCHEMA = 1
"""The version of ``replay.json``."""
NUM_ROUNDS = 4
"""Requests for every row of the batch, at least, so that it is full most of the time."""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark replay ARGUMENTS`."""
    return launch("replay", arguments, _job)


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.config.replay import parse_replay

    config = parse_replay(invocation.plain)
    from dspark.analysis.replay.files import read_trace
    from dspark.cli.session import resume_command
    from dspark.config.build import build_cost

    trace = read_trace(config.trace.expanduser())
    trace.check_whole("`replay`")
    if trace.num_positions == 0:
        raise ValueError("the trace's requests have one output token each: record longer ones")
    cost = build_cost(config.cost)
    assert cost is not None, "checked by the configuration"
    entrants = _entrants(config, invocation, trace, cost)
    try:
        cells = _cells(config, invocation, trace, cost, entrants)
    except KeyboardInterrupt:
        print(f"\ndspark: interrupted; go on with: {resume_command(invocation)}", file=sys.stderr)
        raise
    found = _compared(config, invocation, trace, entrants, cells)
    _show(invocation, config, found)
    return 0


def _entrants(
    config: ReplayCommand, invocation: Invocation, trace: AcceptanceTrace, cost: CostModel
) -> dict[str, Policy | Oracle]:
    """Every fixed depth, the given policies, and hindsight, by label.

    Raises:
        ValueError: a policy is wrong, or needs what the trace does not hold.
    """
    from dspark.analysis.replay.hindsight import JointHindsight
    from dspark.analysis.replay.rows import ORACLE
    from dspark.cli.trace_policies import trace_policies
    from dspark.policies.fixed import Fixed

    return {
        **{f"fixed {depth}": Fixed(depth=depth) for depth in range(trace.depth + 1)},
        **trace_policies(config.policies, invocation, trace, cost),
        ORACLE: JointHindsight(depth=trace.depth),
    }


def _cells(
    config: ReplayCommand,
    invocation: Invocation,
    trace: AcceptanceTrace,
    cost: CostModel,
    entrants: Entrants,
) -> dict[tuple[str, int], dict[str, Any]]:
    """A line of ``cells.jsonl`` for every entrant and batch size; those that are there are not run again."""
    import torch
    from rich.progress import Progress

    from dspark.cli.console import stderr
    from dspark.cli.provenance import provenance
    from dspark.cli.rundir import claim_folder
    from dspark.metrics.trace import JsonlWriter, drop_torn_line, read_jsonl

    origin = provenance(invocation, device=torch.device("cpu"), num_threads=torch.get_num_threads())
    origin["config"] = {**origin["config"], "contents_sha256": _contents(config)}
    claim_folder(invocation.run_dir, origin, resume=config.resume)
    path = invocation.run_dir / "cells.jsonl"
    drop_torn_line(path)
    done = {(item["row"]["policy"], item["row"]["batch_size"]): item for item in read_jsonl(path)}
    with JsonlWriter(path) as writer, Progress(console=stderr(), transient=True) as bar:
        task = bar.add_task("replay", total=len(entrants) * len(config.replay.batch_sizes))
        for size in config.replay.batch_sizes:
            rounds = -(-NUM_ROUNDS * size // trace.num_requests)  # whole ones: requests count alike
            repeated = trace.of([*range(trace.num_requests)] * rounds)
            for name, policy in entrants.items():
                bar.update(task, description=f"{name}, batch {size}")
                if (name, size) not in done:
                    done[name, size] = _cell(config, name, policy, size, repeated, trace.num_requests, cost)
                    writer.write(done[name, size])
                bar.advance(task)
    return done


def _cell(
    config: ReplayCommand,
    name: str,
    policy: Policy | Oracle,
    batch_size: int,
    repeated: AcceptanceTrace,
    num_requests: int,
    cost: CostModel,
) -> dict[str, Any]:
    """One replay of the trace's requests, which come several times one after another."""
    from dspark.analysis.replay.headroom import request_seconds
    from dspark.analysis.replay.rows import replayed_row
    from dspark.analysis.replay.run import replay
    from dspark.cli.session import cost_label

    done = replay(repeated, policy, batch_size=batch_size, cost=cost, prefill_chunk=1 << 30)
    told = ("drafter", "verification", "workload", "target", "numerics", "temperature")
    row = {
        "policy": name,
        "batch_size": batch_size,
        **{key: repeated.origin[key] for key in told if key in repeated.origin},
        "cost_model": cost_label(config.cost),
        **replayed_row(done),
    }
    seconds = request_seconds(done, cost).reshape(-1, num_requests).mean(0)
    return {"cell": f"{name}/batch {batch_size}", "row": row, "modelled_request_s": seconds.tolist()}


def _contents(config: ReplayCommand) -> dict[str, str]:
    """Digests of the files that drafts and seconds come from: who goes on must read the same."""
    import hashlib
    from pathlib import Path

    files = {"trace": config.trace}
    if isinstance(config.cost.settings.get("path"), str):
        files["cost"] = Path(config.cost.settings["path"])
    return {name: hashlib.sha256(path.expanduser().read_bytes()).hexdigest() for name, path in files.items()}


def _compared(
    config: ReplayCommand,
    invocation: Invocation,
    trace: AcceptanceTrace,
    entrants: Entrants,
    cells: Mapping[tuple[str, int], Mapping[str, Any]],
) -> dict[str, Any]:
    """What ``replay.json`` now holds."""
    import numpy as np

    from dspark.analysis.replay.headroom import paired_speeds
    from dspark.analysis.replay.rows import compared_batch
    from dspark.cli.provenance import command_line
    from dspark.metrics.trace import write_json

    settings = config.replay
    batches, rows = [], []
    for size in settings.batch_sizes:
        own = {name: cells[name, size] for name in entrants}
        speeds = paired_speeds(
            trace.output_tokens,
            {name: np.array(cell["modelled_request_s"]) for name, cell in own.items()},
            num_resamples=settings.num_resamples,
            confidence=settings.confidence,
            seed=settings.seed,
        )
        batch, compared = compared_batch([cell["row"] for cell in own.values()], speeds)
        batches.append({"batch_size": size, **batch})
        rows += compared
    found = {
        "schema": SCHEMA,
        "command": command_line(invocation),
        "trace": {
            "path": str(config.trace),
            "num_requests": trace.num_requests,
            "num_positions": trace.num_positions,
            "depth": trace.depth,
            "origin": dict(trace.origin),
        },
        "confidence": settings.confidence,
        "num_resamples": settings.num_resamples,
        "batches": batches,
        "rows": rows,
    }
    write_json(invocation.run_dir / "replay.json", found)
    return found


def _show(invocation: Invocation, config: ReplayCommand, found: Mapping[str, Any]) -> None:
    """A table a batch size, what is undefined, and the figure."""
    from dspark.analysis.replay.figure import draw_replay
    from dspark.analysis.replay.report import batch_table, undefined
    from dspark.cli.console import stdout

    console = stdout()
    for batch in found["batches"]:
        console.print(batch_table(found, batch["batch_size"]))
    for line in undefined(found):
        console.print(line, markup=False, soft_wrap=True)
    folder = invocation.run_dir
    title = f"replay of {config.trace.name}, seconds modelled on {found['rows'][0]['cost_model']}"
    figure = draw_replay(found["rows"], folder / "figures" / "replay.png", title=title)
    console.print(f"figure: {figure}\nreplay: {folder / 'replay.json'}", markup=False, soft_wrap=True)
