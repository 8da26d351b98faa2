"""Draft & Verify: where drafts end, and how the threshold follows acceptance."""

from __future__ import annotations

import math

import pytest
import torch

from dspark.policies.draft_verify import DraftVerify
from dspark.types import LosslessClass, Signal, Verdict
from tests.policies.drafting import block_of, verified_either_way

NAN = math.nan
PROBABILITIES = [[0.9, 0.79, 0.9, 0.9], [0.8, 0.8, 0.8, 0.8], [0.1, 0.9, 0.9, 0.9], [0.9, 0.95, NAN, NAN]]


def test_the_first_improbable_token_is_verified_and_nothing_behind_it(step_context):
    block = block_of({Signal.TOKEN_PROBABILITY: PROBABILITIES})
    policy = DraftVerify(depth=4, threshold=0.8)
    assert verified_either_way(policy, step_context(4), block, policy.init(4)) == [2, 4, 1, 2]


def test_each_row_has_a_threshold_of_its_own(step_context):
    ctx = step_context(2)
    policy = DraftVerify(depth=4, threshold=0.8, increment=1.0, match_decay=0.0)
    block = block_of({Signal.TOKEN_PROBABILITY: [[0.75, 0.85, 0.75, 0.75]] * 2})
    state = policy.init(2)
    assert verified_either_way(policy, ctx, block, state) == [1, 1]
    # row 0 has its one token accepted and goes down to .7, row 1 has it rejected and goes up to .9
    counts = torch.tensor([1, 0])
    verdict = Verdict(verify_lengths=torch.tensor([1, 1]), accepted=counts, next_token=counts)
    state = policy.observe(ctx, verdict, state)
    assert state.threshold.tolist() == pytest.approx([0.7, 0.9])
    assert verified_either_way(policy, ctx, block, state) == [4, 1]


def test_defaults_are_the_authors():
    policy = DraftVerify()
    assert (policy.depth, policy.threshold, policy.target, policy.increment) == (8, 0.8, 0.9, 0.01)
    assert (policy.match_decay, policy.threshold_decay) == (0.5, 0.9)
    assert policy.lossless_class is LosslessClass.STOP_AFTER
    assert policy.needs == {Signal.TOKEN_PROBABILITY}


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match=r"^threshold must be in \[0, 1\], got 2$"):
        DraftVerify(threshold=2)
    with pytest.raises(ValueError, match=r"^depth must be >= 0, got -1$"):
        DraftVerify(depth=-1)
