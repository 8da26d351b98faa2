"""Seconds of steps that verify every draft in full: the diagonal of a profile that an SPS table is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.cost.profile_cost import ProfileCost

if TYPE_CHECKING:
    from dspark.cost.profile import Profile


def full_verify_seconds(
    profile: Profile, *, depth: int, context: int | None = None
) -> tuple[list[int], list[float]]:
    """Numbers of tokens in a pass, ascending, and the seconds of a step with each.

    A pass of B tokens is taken for B / (depth + 1) rows that are verified in full, since a table
    by tokens cannot say how many rows there are. Draft and overhead seconds count.

    Args:
        profile: what `dspark profile` measured; its sizes of a pass are taken.
        depth: of every draft, >= 1.
        context: cached tokens of a row; None takes the middle one of those measured.
    """
    if context is None:
        contexts = sorted({point.context for point in profile.passes})
        context = contexts[len(contexts) // 2]
    tokens = torch.tensor(sorted({point.tokens for point in profile.passes}))
    rows = (tokens // (depth + 1)).clamp(min=1)
    times = ProfileCost.of(profile).step_time_s(
        decode_rows=rows, tokens=tokens, context_tokens=rows * context, draft_tokens=torch.tensor(depth)
    )
    return tokens.tolist(), times.total_s.tolist()
