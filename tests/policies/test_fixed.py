"""Fixed depth."""

from __future__ import annotations

import pytest
import torch

from dspark.policies import Fixed
from dspark.types import Signal


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_every_row_of_every_step_has_the_depth(depth, step_context, random_draft):
    policy = Fixed(depth=depth)
    assert policy.max_depth == depth
    for num_rows in (0, 1, 17):
        assert policy.plan(step_context(num_rows), None).tolist() == [depth] * num_rows


def test_a_draft_is_neither_stopped_nor_cut(step_context, random_draft):
    ctx = step_context(3)
    draft = random_draft(torch.tensor([0, 4, 2]), torch.Generator().manual_seed(0))
    policy = Fixed(depth=4)
    assert policy.needs == frozenset()
    assert policy.trim(ctx, draft, None).tolist() == [0, 4, 2]
    assert policy.proceed(ctx, 1, {Signal.ENTROPY: torch.zeros(3, 1)}, None).tolist() == [True] * 3
