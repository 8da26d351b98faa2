"""SVIP: where drafts end."""

from __future__ import annotations

import math

import pytest
import torch

from dspark.policies.svip import Svip
from dspark.types import LosslessClass, Signal
from tests.policies.drafting import block_of, spared, verified_either_way

NAN = math.nan


def test_the_first_flat_position_is_verified_and_nothing_behind_it(step_context):
    # √(.15·H) > .3 iff H > .6
    block = block_of(
        {
            Signal.ENTROPY: [
                [0.1, 0.5, 0.61, 0.1, 0.1],
                [0.7, 0.1, 0.1, 0.1, 0.1],
                [0.1, 0.1, 0.1, 0.1, 0.1],
                [0.1, 0.59, NAN, NAN, NAN],
                [NAN, NAN, NAN, NAN, NAN],
            ]
        }
    )
    policy = Svip(depth=5)
    assert verified_either_way(policy, step_context(5), block, None) == [3, 1, 5, 2, 0]
    assert spared(policy, step_context(5), block, None) == [2, 4, 0, 0, 0]


def test_defaults_are_the_authors():
    policy = Svip()
    assert (policy.depth, policy.c, policy.threshold) == (40, 0.15, 0.3)
    assert policy.lossless_class is LosslessClass.STOP_AFTER
    assert policy.needs == {Signal.ENTROPY}


def test_larger_thresholds_draft_further_and_a_point_mass_never_stops(step_context):
    entropy = torch.linspace(0, 3, 10)[None]
    block = block_of({Signal.ENTROPY: entropy.tolist()})
    lengths = [
        verified_either_way(Svip(depth=10, threshold=h), step_context(1), block, None)[0]
        for h in (0.0, 0.2, 0.4, 0.6, 0.7)
    ]
    # H of position k is (k - 1)/3; √(.15 H) > h first at H > h²/.15: 0, .267, 1.067, 2.4, (3.267: never)
    assert lengths == [2, 2, 5, 9, 10]
    rounded_below_zero = block_of({Signal.ENTROPY: [[-1e-8] * 3]})
    assert verified_either_way(Svip(threshold=0.0), step_context(1), rounded_below_zero, None) == [3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"c": 0.0}, r"^c must be a number > 0, got 0.0$"),
        ({"threshold": -0.1}, r"^threshold must be a number >= 0, got -0.1$"),
        ({"threshold": NAN}, r"got nan$"),
        ({"depth": -1}, r"^depth must be >= 0, got -1$"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Svip(**settings)
