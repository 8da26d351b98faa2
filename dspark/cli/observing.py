"""A run of drafts of full depth whose every step is written down, for what is worked out from it later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark.cli.session import Session
    from dspark.engine.engine import Engine
    from dspark.policies.recorder import LastStep
    from dspark.types import StepRecord, Verdict


def record_observations(
    session: Session, label: str, verdict_of: Callable[[LastStep], Verdict]
) -> dict[str, Any]:
    """The summary row, after running what is left, with every step's signals and verdict on disk.

    Args:
        session: whose policy of that label is a :class:`~dspark.policies.recorder.Recorder`.
        label: the policy.
        verdict_of: what is written as the step's verdict.
    """
    from dspark.cli.run import run_requests
    from dspark.metrics.observations import FILE_NAME, observation_to_json
    from dspark.metrics.trace import JsonlWriter, drop_torn_line

    run_dir = session.run_dir
    path = run_dir.path / FILE_NAME
    drop_torn_line(path)
    with JsonlWriter(path) as writer:

        def write(engine: Engine, step: StepRecord) -> None:
            if step.rows:
                last, names = engine.policy_state, [row.request_id for row in step.rows]
                verdict = verdict_of(last)
                writer.write(observation_to_json(names, last.ctx, verdict, attempt=run_dir.attempt))

        return run_requests(session, label, on_step=write)
