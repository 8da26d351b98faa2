"""What a finished step was worth, for policies that learn from measured time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.types import Verdict


def emitted_tokens(verdict: Verdict) -> int:
    """Tokens of the step before any end or cap cut them: each row's accepted ones and one more."""
    # one number of a step that is over: the engine has waited for the same tensor to commit it
    return int(verdict.accepted.sum()) + len(verdict.accepted)


def is_timed(verdict: Verdict) -> bool:
    """False where nothing can be learned about time: no rows, or a step that took no seconds."""
    return len(verdict.accepted) > 0 and verdict.step_time_s > 0
