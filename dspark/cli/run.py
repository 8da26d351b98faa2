"""`dspark run`: one policy on one engine; a stopped run goes on with the requests it has left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.cli.session import OnStep, Session
    from dspark.metrics.tally import Tally
    from dspark.types import Request

CELL = "run"
"""The name of a run's only cell in its files."""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark run ARGUMENTS`."""
    return launch("run", arguments, _job)


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.config.compose import PolicyEntry, compose_policy, policy_label
    from dspark.config.schema import parse_config

    config = parse_config(invocation.plain)
    if config.policy is None or config.compare is not None:
        raise ValueError("`run` takes one policy: choose policy=NAME, and use `compare` for several")
    option = invocation.policy_option or "policy"
    entry = PolicyEntry(option=option, value=None, overrides=())
    _, defaults = compose_policy(entry, invocation.search_path)
    label = policy_label(option, invocation.plain["policy"], defaults)
    from dspark.config.check import prepare

    prepared = prepare(config, {label: config.policy})
    from dspark.cli.session import open_session

    with open_session(invocation, prepared) as session:
        _show(session, run_requests(session, label))
    return 0


def run_requests(session: Session, label: str, on_step: OnStep | None = None) -> dict[str, Any]:
    """The summary row of all requests, also in ``summary.json``; those that are left run now.

    Args:
        session: with the policy of that label.
        label: the policy.
        on_step: sees every step of this start, before it is written.
    """
    from dspark.cli.console import CellProgress
    from dspark.metrics.tally import Tally

    requests, run_dir = session.prepared.requests, session.run_dir
    tally = Tally()
    for step in run_dir.kept_steps(CELL, requests):
        tally.add(step)
    finished = run_dir.completions(CELL, requests)
    left = _shifted([request for request in requests if request.request_id not in finished])
    batch_size = session.prepared.config.engine.max_batch_size
    progress = CellProgress(session.console, num_cells=1, num_requests=len(requests))
    progress.skip(len(finished))
    try:
        if left:
            session.warm_up(batch_size)
            with progress.shown():
                progress.start_cell(1, f"{label}, batch {batch_size}")
                session.measure(
                    CELL,
                    policy=label,
                    batch_size=batch_size,
                    requests=left,
                    tally=tally,
                    progress=progress,
                    on_step=on_step,
                )
            progress.end_cell(f"{label}, batch {batch_size}")
    finally:
        row = _summarise(session, label, batch_size, tally)
    return row


def _summarise(session: Session, label: str, batch_size: int, tally: Tally) -> dict[str, Any]:
    """The summary row, also in ``summary.json``; ``complete`` is false where requests are left."""
    from dspark.cli.provenance import command_line
    from dspark.metrics.summary import SUMMARY_SCHEMA

    requests = session.prepared.requests
    completions = list(session.run_dir.completions(CELL, requests).values())
    row = session.row(label, batch_size, tally, completions)
    session.run_dir.write_summary(
        {
            "schema": SUMMARY_SCHEMA,
            "command": command_line(session.invocation),
            "complete": len(completions) == len(requests),
            "rows": [row],
        }
    )
    return row


def _show(session: Session, row: dict[str, Any]) -> None:
    from dspark.analysis.report import summary_table
    from dspark.cli.console import stdout

    session.tracker.summarise({"": row}, [])
    console, path = stdout(), session.run_dir.path
    console.print(summary_table([row]))
    console.print(f"outputs: {path / 'outputs.jsonl'}\nsummary: {path / 'summary.json'}", soft_wrap=True)


def _shifted(requests: list[Request]) -> list[Request]:
    """The requests with the first arrival now; what an earlier start waited for is not waited for again."""
    first_s = min((request.arrival_s for request in requests), default=0.0)
    return [replace(request, arrival_s=request.arrival_s - first_s) for request in requests]
