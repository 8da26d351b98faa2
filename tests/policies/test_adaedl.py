"""AdaEDL: where drafts end, and how λ follows acceptance."""

from __future__ import annotations

import math

import pytest
import torch

from dspark.policies.adaedl import Adaedl
from dspark.types import LosslessClass, Signal, Verdict
from tests.policies.drafting import block_of, verified_either_way

NAN = math.nan


def test_the_first_low_bound_is_verified_and_nothing_behind_it(step_context):
    # 1 − √(.2·H) < .5 iff H > 1.25
    entropy = [
        [0.5, 1.3, 0.1, 0.1],
        [1.2, 1.24, 1.25, 0.0],
        [3.0, 0.0, 0.0, 0.0],
        [0.1, 0.1, NAN, NAN],
        [NAN] * 4,
    ]
    block = block_of({Signal.ENTROPY: entropy})
    policy = Adaedl(depth=4)
    assert verified_either_way(policy, step_context(5), block, policy.init(5)) == [2, 4, 1, 2, 0]


def test_lambda_follows_acceptance_row_by_row(step_context):
    ctx = step_context(2)
    policy = Adaedl(depth=4, increment=1.0, match_decay=0.0)
    block = block_of({Signal.ENTROPY: [[1.3, 1.0, 1.0, 1.0]] * 2})  # bounds .49 and .553
    state = policy.init(2)
    assert verified_either_way(policy, ctx, block, state) == [1, 1]
    counts = torch.tensor([1, 0])
    verdict = Verdict(verify_lengths=torch.tensor([1, 1]), accepted=counts, next_token=counts)
    state = policy.observe(ctx, verdict, state)
    assert state.threshold.tolist() == pytest.approx([0.4, 0.6])
    assert verified_either_way(policy, ctx, block, state) == [4, 1]


def test_a_lambda_of_zero_never_stops(step_context):
    block = block_of({Signal.ENTROPY: [[9.0, 9.0, 9.0]]})
    policy = Adaedl(depth=3, threshold=0.0)
    assert verified_either_way(policy, step_context(1), block, policy.init(1)) == [3]


def test_defaults_are_the_papers():
    policy = Adaedl()
    assert (policy.gamma, policy.threshold, policy.target, policy.increment) == (0.2, 0.5, 0.9, 0.01)
    assert (policy.match_decay, policy.threshold_decay) == (0.5, 0.9)
    assert policy.lossless_class is LosslessClass.STOP_AFTER
    assert policy.needs == {Signal.ENTROPY}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.0}, r"^gamma must be a number > 0, got 0.0$"),
        ({"threshold": -1.0}, r"^threshold must be in \[0, 1\], got -1.0$"),
        ({"depth": 1.5}, r"^depth must be a whole number, got 1.5$"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Adaedl(**settings)
