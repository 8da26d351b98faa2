"""Where a live run and its replay first part, if they do: step for step, and row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.analysis.replay.record import Replay
    from dspark.types import StepRecord

FIELDS = ("planned", "allowed", "drafted", "verified", "accepted", "emitted", "context")
"""Of every row of every step."""


def first_difference(live: Sequence[StepRecord], done: Replay) -> str | None:
    """One line on the first difference; None: every step has the same rows with the same depths and tokens.

    Args:
        live: all steps of the run.
        done: the replay of its policy at its batch size.
    """
    names, rows = done.trace.request_ids, done.rows
    bounds = np.searchsorted(rows["step"], np.arange(len(done.step_s) + 1))
    for number, step in enumerate(live[: len(done.step_s)]):
        replayed = range(int(bounds[number]), int(bounds[number + 1]))
        ours = [row.request_id for row in step.rows]
        theirs = [names[rows["request"][i]] for i in replayed]
        if ours != theirs:
            return f"step {number}: rows {', '.join(ours)} live, {', '.join(theirs)} replayed"
        for row, i in zip(step.rows, replayed, strict=True):
            for field in FIELDS:
                if getattr(row, field) != rows[field][i]:
                    return (
                        f"step {number}, {row.request_id}: {field} {getattr(row, field)} live, "
                        f"{rows[field][i]} replayed"
                    )
        if (step.num_prefill_rows, step.num_pass_tokens) != (
            done.steps["prefill_rows"][number],
            done.steps["pass_tokens"][number],
        ):
            return f"step {number}: another pass, of {step.num_pass_tokens} tokens live"
    if len(live) != len(done.step_s):
        return f"{len(live)} steps live, {len(done.step_s)} replayed"
    return None
