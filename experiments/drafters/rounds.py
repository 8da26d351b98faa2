"""Tokens a round over all rounds of a run, those without a draft among them.

The acceptance length counts the rounds that drafted. A drafter that is silent where it would be wrong, such
as prompt lookup, is flattered by that; over all rounds it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.analysis.frames import rows_frame

if TYPE_CHECKING:
    from pathlib import Path


def rounds_of(folder: Path) -> dict[str, float]:
    """``tokens_a_round`` and ``drafted_share``, of rounds, of the `dspark run` in ``folder``.

    A round is a row of a decode step: one pass of the target over one request. A request's first token,
    which its prefill gives, is in no round.

    Raises:
        ValueError: the run has no round.
    """
    rounds = rows_frame(folder)
    if rounds.empty:
        raise ValueError(f"the run in {folder} has no decode step: give sampling.max_new_tokens of 2 or more")
    return {
        "tokens_a_round": float(rounds["emitted"].mean()),
        "drafted_share": float((rounds["drafted"] > 0).mean()),
    }
