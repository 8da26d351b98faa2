"""Profiles with known seconds, for tests: nothing here was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dspark.cost.base import CostModel
from dspark.cost.profile import DraftPoint, Machine, PassPoint, Profile, ProfiledDrafter, ProfiledModel

Law = Callable[[int, int, int], float]
"""Seconds of rows, context of a row, tokens."""

MACHINE = Machine(
    processor="none", num_cpus=2, num_threads=1, device="cpu", torch="2.13.0", transformers="5.17.0"
)
DRAFTER = ProfiledDrafter(name="ngram", verification="rejection", temperature=0.0, prompt_tokens=64)


def profile_of(
    passes: Sequence[tuple[int, int, int, float]],
    drafts: Sequence[tuple[int, int, float, float]] = (),
    captured: tuple[int, ...] = (),
) -> Profile:
    """A profile of passes (rows, context, tokens, seconds) and steps (rows, depth, draft_s, overhead_s)."""
    return Profile(
        machine=MACHINE,
        model=ProfiledModel(
            name="tiny", dtype="float32", numerics="fast", attention="dspark", captured_tokens=captured
        ),
        drafter=DRAFTER,
        passes=tuple(
            PassPoint(rows=rows, context=context, tokens=tokens, seconds=(seconds,))
            for rows, context, tokens, seconds in passes
        ),
        drafts=tuple(
            DraftPoint(rows=rows, depth=depth, draft_s=(draft_s,), overhead_s=(overhead_s,))
            for rows, depth, draft_s, overhead_s in drafts
        ),
    )


def by_law(
    law: Law,
    *,
    rows: Sequence[int] = (1, 4, 16),
    contexts: Sequence[int] = (10, 50, 100),
    tokens: Sequence[int] = (1, 2, 4, 8, 16, 32),
    max_cached: int = 800,
    draft: Callable[[int, int], float] | None = None,
) -> Profile:
    """The profile of a grid of sizes that take what the law says, each possible pass once."""
    passes = [
        (r, c, n, law(r, c, n))
        for r in rows
        for c in contexts
        for n in tokens
        if n >= r and r * c <= max_cached
    ]
    drafts = [] if draft is None else [(r, d, draft(r, d), 0.5) for r in rows for d in (1, 2, 4)]
    return profile_of(passes, drafts)


def seconds(
    cost: CostModel, *, rows: Sequence[int], tokens: Sequence[float], cached: Sequence[float]
) -> list[float]:
    """Seconds of passes of these rows, tokens and cached tokens over all rows."""
    times = cost.step_time_s(
        decode_rows=torch.tensor(rows),
        tokens=torch.tensor(tokens),
        context_tokens=torch.tensor(cached),
        draft_tokens=torch.tensor(0),
    )
    return times.target_s.tolist()
