"""Tokens a round over all rounds of a run, those without a draft among them.

The acceptance length counts the rounds that drafted. A drafter that is silent where it would be wrong, such
as prompt lookup, is flattered by that; over all rounds it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.metrics.trace import read_jsonl

if TYPE_CHECKING:
    from pathlib import Path


def rounds_of(folder: Path) -> tuple[float, float]:
    """Tokens a round, and the share of rounds that drafted, of the `dspark run` in ``folder``.

    A round is a row of a decode step: one pass of the target over one request. A request's first token,
    which its prefill gives, is in no round.

    Raises:
        ValueError: the run has no round.
    """
    emitted = num_rounds = num_drafted = 0
    for step in read_jsonl(folder / "steps.jsonl"):
        rows = step["rows"]
        num_rounds += len(rows["request_id"])
        emitted += sum(rows["emitted"])
        num_drafted += sum(drafted > 0 for drafted in rows["drafted"])
    if num_rounds == 0:
        raise ValueError(f"the run in {folder} has no decode step: give sampling.max_new_tokens of 2 or more")
    return emitted / num_rounds, num_drafted / num_rounds
