"""Steps and completions with numbers that are easy to add up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dspark.types import Completion, FinishReason, RowRecord, StepRecord, TokenChunk


def make_row(
    request_id: str, *, drafted: int, accepted: int, emitted: int | None = None, **more: Any
) -> RowRecord:
    """A row that verifies all it drafted and emits all it may, unless told otherwise."""
    emitted = accepted + 1 if emitted is None else emitted
    values: dict[str, Any] = {
        "planned": drafted,
        "allowed": drafted,
        "verified": drafted,
        "accepted_emitted": min(accepted, emitted),
        "context": 10,
        **more,
    }
    return RowRecord(request_id=request_id, drafted=drafted, accepted=accepted, emitted=emitted, **values)


def make_step(
    number: int, rows: list[RowRecord], *, wall_s: float, prefill: int = 0, **more: Any
) -> StepRecord:
    """A step of these decode rows, with one prefill row of ``prefill`` tokens if there are any."""
    values: dict[str, Any] = {
        "num_prefill_rows": int(prefill > 0),
        "num_prefill_tokens": prefill,
        "num_pass_tokens": prefill + sum(1 + row.verified for row in rows),
        "context_tokens": sum(row.context for row in rows),
        "chunks": tuple(
            TokenChunk(request_id=row.request_id, token_ids=tuple(range(row.emitted)), completion=None)
            for row in rows
        ),
        "time_split_s": {"target": wall_s},
        **more,
    }
    return StepRecord(step=number, rows=tuple(rows), wall_s=wall_s, **values)


def make_completion(
    request_id: str, num_tokens: int, *, ttft_s: float = 0.1, latency_s: float = 1.0
) -> Completion:
    """A finished request of the tokens 0, 1, 2, ..."""
    return Completion(
        request_id=request_id,
        prompt_ids=(1, 2),
        token_ids=tuple(range(num_tokens)),
        text="x",
        finish_reason=FinishReason.LENGTH,
        ttft_s=ttft_s,
        latency_s=latency_s,
    )


@pytest.fixture
def steps() -> list[StepRecord]:
    """Prefill of a; then a decodes while b prefills; then both decode twice.

    Row-steps: a (drafted 4, accepted 2), a (4, 4), b (2, 0), a (0, 0), b (3, 1, of which the cap cut
    the last token: 1 emitted).
    """
    return [
        make_step(0, [], wall_s=1.0, prefill=20),
        make_step(1, [make_row("a", drafted=4, accepted=2)], wall_s=2.0, prefill=30),
        make_step(
            2, [make_row("a", drafted=4, accepted=4), make_row("b", drafted=2, accepted=0)], wall_s=0.5
        ),
        make_step(
            3,
            [make_row("a", drafted=0, accepted=0), make_row("b", drafted=3, accepted=1, emitted=1)],
            wall_s=0.25,
        ),
    ]
