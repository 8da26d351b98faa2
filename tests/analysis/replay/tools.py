"""Traces recorded by the real engine, and what a live run did, for comparison with a replay."""

from __future__ import annotations

import numpy as np

from dspark.analysis.replay.build import TraceBuilder, TracedRequest
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.engine.clock_modelled import ModelledClock
from dspark.engine.engine import Engine
from dspark.policies.recorder import Recorder
from dspark.types import Request
from dspark.verification.recording import Recording


def requests_of(prompts, params) -> list[Request]:
    return [
        Request(request_id=f"r{i}", prompt_ids=tuple(prompt), params=params)
        for i, prompt in enumerate(prompts)
    ]


def record(target, drafter, requests, rule, depth: int, batch_size: int = 4) -> AcceptanceTrace:
    """The counterfactual trace of the requests."""
    told = []
    engine = Engine(
        target,
        drafter,
        Recorder(depth=depth, signals=drafter.signals),
        verification=Recording(rule, told.append),
        max_batch_size=batch_size,
        seed=5,
    )
    builder = TraceBuilder(depth, drafter.signals)
    prompts = {request.request_id: len(request.prompt_ids) for request in requests}
    for step in engine.run(requests):
        if not step.rows:
            continue
        draft = engine.policy_state.verdict.draft
        for row, record in enumerate(step.rows):
            assert (record.emitted, record.accepted) == (1, 0)
            builder.add(
                record.request_id,
                record.context - prompts[record.request_id],
                drafted=record.drafted,
                accepted=int(told[-1][row]),
                signals={} if draft is None else {s: v[row].tolist() for s, v in draft.signals.items()},
            )
    done = [engine.completions[request.request_id] for request in requests]
    return builder.trace(
        [
            TracedRequest(
                request_id=completion.request_id,
                prompt_tokens=len(completion.prompt_ids),
                output_tokens=len(completion.token_ids),
                max_tokens=min(
                    len(completion.prompt_ids) + request.params.max_new_tokens, target.max_context
                ),
            )
            for completion, request in zip(done, requests, strict=True)
        ],
        autoregressive=drafter.autoregressive,
        origin={"verification": rule.name},
    )


def live_steps(target, drafter, policy, requests, rule, *, batch_size: int, cost, prefill_chunk: int):
    """The step records of the real engine under a modelled clock."""
    engine = Engine(
        target,
        drafter,
        policy,
        verification=rule,
        max_batch_size=batch_size,
        prefill_chunk=prefill_chunk,
        cost=cost,
        clock=ModelledClock(cost),
        seed=5,
    )
    return list(engine.run(requests))


def assert_same(live, replayed) -> None:
    """Step for step and row for row: depths, verify lengths, acceptance, tokens, contexts and seconds."""
    names = replayed.trace.request_ids
    ours = [[] for _ in live]
    columns = zip(*(replayed.rows[name].tolist() for name in replayed.rows), strict=True)
    for values in columns:
        row = dict(zip(replayed.rows, values, strict=True))
        ours[row["step"]].append(row)
    assert len(live) == len(replayed.step_s)
    for step, rows in zip(live, ours, strict=True):
        assert [row.request_id for row in step.rows] == [names[row["request"]] for row in rows]
        for field in ("planned", "allowed", "drafted", "verified", "accepted", "emitted", "context"):
            assert [getattr(row, field) for row in step.rows] == [row[field] for row in rows], field
    for ours_name, theirs in (
        ("pass_tokens", "num_pass_tokens"),
        ("context_tokens", "context_tokens"),
        ("prefill_rows", "num_prefill_rows"),
        ("prefill_tokens", "num_prefill_tokens"),
    ):
        assert replayed.steps[ours_name].tolist() == [getattr(step, theirs) for step in live], ours_name
    np.testing.assert_allclose(replayed.step_s, [step.wall_s for step in live], rtol=1e-9, atol=1e-12)
