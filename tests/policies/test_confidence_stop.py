"""confidence_stop: one depth for the batch, set by its surest row."""

from __future__ import annotations

import math

import pytest
import torch

from dspark.policies.confidence_stop import ConfidenceStop
from dspark.types import Draft, LosslessClass, Signal
from tests.policies.drafting import block_of, spared, verified_either_way

NAN = math.nan
TOP1 = Signal.TOP1_PROBABILITY


@pytest.mark.parametrize(
    ("top1", "verified"),
    [
        # the first row lives for two steps; the second died at the first and stays dead
        ([[0.9, 0.7, 0.4, 0.9], [0.3, 0.99, 0.99, 0.99]], [2, 2]),
        # nobody lives at the first step: one token is verified all the same
        ([[0.4, 0.9, 0.9, 0.9], [0.3, 0.99, 0.99, 0.99]], [1, 1]),
        # a chain survives the last step: all are verified
        ([[0.9, 0.9, 0.9, 0.9], [0.1, 0.1, 0.1, 0.1]], [4, 4]),
        # a chain that dies in the last step: one less
        ([[0.9, 0.9, 0.9, 0.4], [0.1, 0.1, 0.1, 0.1]], [3, 3]),
        # rows that were cut short are verified as far as they go, and end with what was drafted
        ([[0.9, 0.9, NAN, NAN], [0.1, 0.9, 0.9, 0.9]], [2, 2]),
        ([[0.1, NAN, NAN, NAN], [0.9, 0.9, 0.9, 0.3]], [1, 3]),
        ([[NAN, NAN, NAN, NAN], [0.9, 0.2, 0.9, 0.9]], [0, 1]),
    ],
)
def test_the_first_step_without_a_live_chain_is_dropped(top1, verified, step_context):
    policy = ConfidenceStop(depth=4, threshold=0.5)
    assert verified_either_way(policy, step_context(2), block_of({TOP1: top1}), None) == verified


def test_all_rows_stop_drafting_together(step_context):
    block = block_of({TOP1: [[0.9, 0.7, 0.4, 0.9, 0.9], [0.3, 0.99, 0.99, 0.99, 0.99]]})
    # the third step found nobody alive; the fourth is not drafted
    assert spared(ConfidenceStop(depth=5, threshold=0.5), step_context(2), block, None) == [2, 2]


def test_random_batches_against_a_loop(step_context):
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        num_rows, depth = torch.randint(1, 6, (2,), generator=generator).tolist()
        top1 = torch.rand(num_rows, depth, generator=generator)
        lengths = torch.randint(0, depth + 1, (num_rows,), generator=generator)
        top1 = top1.where(torch.arange(depth) < lengths[:, None], torch.nan)
        policy = ConfidenceStop(depth=depth, threshold=float(torch.rand((), generator=generator)))
        alive = set(range(num_rows))
        lived = 0
        for k in range(depth):
            alive = {row for row in alive if top1[row, k].item() >= policy.threshold}
            lived += bool(alive)
        expected = [min(length, max(1, lived)) for length in lengths.tolist()]
        block = block_of({TOP1: top1.tolist()})
        assert verified_either_way(policy, step_context(num_rows), block, None) == expected


def test_an_empty_batch_is_none(step_context):
    signals = {TOP1: torch.zeros(0, 3)}
    policy = ConfidenceStop()
    assert policy.proceed(step_context(0), 3, signals, None).shape == (0,)
    empty = torch.zeros(0, 3, dtype=torch.long)
    draft = Draft(tokens=empty, lengths=empty.sum(dim=1), q=None, signals=signals)
    assert policy.trim(step_context(0), draft, None).shape == (0,)


def test_class_and_needs():
    assert ConfidenceStop().lossless_class is LosslessClass.PRE_TOKEN
    assert ConfidenceStop().needs == {TOP1}
    with pytest.raises(ValueError, match=r"^threshold must be in \[0, 1\], got -0.5$"):
        ConfidenceStop(threshold=-0.5)
