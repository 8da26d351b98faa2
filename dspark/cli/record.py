"""`dspark record`: the counterfactual trace of a drafter on a workload."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, fail, launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cli.session import Session
    from dspark.policies.recorder import LastStep
    from dspark.types import Signal, Verdict

FILE = "trace.parquet"


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark record ARGUMENTS`."""
    if any(word.lstrip("+~").startswith(("policy=", "policy.")) for word in arguments):
        return fail("`record` drafts at every position and takes no policy: set record.depth")
    return launch("record", arguments, _job)


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.config.schema import Component, parse_config

    config = parse_config(invocation.plain)
    settings = config.record
    if settings is None or config.compare is not None:
        raise ValueError("`record` takes the section record, and no other command's")
    from dspark.config.check import prepare, signal_source
    from dspark.policies.recorder import Recorder
    from dspark.verification.recording import Recording

    drafter = signal_source(config)
    if drafter is None:
        raise ValueError("`record` needs a drafter, got drafter=none")
    label = f"fixed {settings.depth}"
    fixed = Component(target="dspark.policies.fixed.Fixed", settings={"depth": settings.depth})
    prepared = prepare(config, {label: fixed})
    told: list[Tensor] = []  # accepted counts of the present step
    rule = Recording(prepared.verification, told.append)
    recorder = Recorder(depth=settings.depth, signals=drafter.signals)
    prepared = replace(prepared, policies={label: recorder}, verification=rule)
    from dspark.cli.observing import record_observations
    from dspark.cli.session import open_session

    def with_true_counts(last: LastStep) -> Verdict:
        accepted = told[-1][: last.ctx.num_rows].cpu()
        told.clear()
        return replace(last.verdict, accepted=accepted)

    with open_session(invocation, prepared) as session:
        row = record_observations(session, label, with_true_counts)
        row["verification"] = rule.inner.name
        _write(session, row, depth=settings.depth, signals=drafter.signals)
    return 0


def _write(session: Session, row: dict[str, Any], *, depth: int, signals: frozenset[Signal]) -> None:
    """The trace's file, and a few lines about it."""
    from dspark.analysis.replay.files import write_trace
    from dspark.cli.console import stdout

    trace = _trace(session, row, depth=depth, signals=signals)
    path = write_trace(trace, session.run_dir.path / FILE)
    session.tracker.summarise({"": row}, [])
    reached = [float((trace.accepted >= k).mean()) for k in range(1, depth + 1)]
    console = stdout()
    console.print(
        f"{trace.num_positions} positions of {trace.num_requests} requests, drafts of up to {depth}; a draft "
        f"from a random position has {trace.accepted.mean():.2f} tokens accepted",
        markup=False,
    )
    console.print("accepted up to k: " + " ".join(f"{share:.2f}" for share in reached), markup=False)
    console.print(f"trace: {path}", markup=False, soft_wrap=True)


def _trace(
    session: Session, row: dict[str, Any], *, depth: int, signals: frozenset[Signal]
) -> AcceptanceTrace:
    from dspark.analysis.replay.build import TraceBuilder, TracedRequest
    from dspark.cli.run import CELL
    from dspark.metrics.observations import read_observations

    requests, run_dir = session.prepared.requests, session.run_dir
    builder = TraceBuilder(depth, signals)
    prompts = {request.request_id: len(request.prompt_ids) for request in requests}
    for observation in read_observations(run_dir.path):
        draft, verdict = observation.verdict.draft, observation.verdict
        contexts = observation.ctx.context_lengths.tolist()
        lengths = [0] * len(contexts) if draft is None else draft.lengths.tolist()
        accepted = verdict.accepted.tolist()
        told = {} if draft is None else {name: values.tolist() for name, values in draft.signals.items()}
        for place, name in enumerate(observation.request_ids):
            builder.add(
                name,
                contexts[place] - prompts[name],
                drafted=lengths[place],
                accepted=accepted[place],
                signals={signal: values[place] for signal, values in told.items()},
            )
    finished = run_dir.completions(CELL, requests)
    room = session.prepared.config.engine.max_tokens_per_row or session.target.max_context
    return builder.trace(
        [
            TracedRequest(
                request_id=request.request_id,
                prompt_tokens=len(request.prompt_ids),
                output_tokens=len(finished[request.request_id].token_ids),
                max_tokens=min(len(request.prompt_ids) + request.params.max_new_tokens, room),
            )
            for request in requests
        ],
        autoregressive=True if session.drafter is None else session.drafter.autoregressive,
        origin={
            key: row[key]
            for key in ("target", "drafter", "verification", "temperature", "workload", "numerics")
        },
    )
