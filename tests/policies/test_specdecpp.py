"""SpecDec++: where drafts end, with each kind of estimator."""

from __future__ import annotations

import json
import math

import pytest
import torch

from dspark.policies.estimators import Constant
from dspark.policies.specdecpp import Specdecpp
from dspark.types import LosslessClass, Signal, Verdict
from tests.policies.drafting import block_of, spared, verified_either_way

NAN = math.nan
TOP1 = Signal.TOP1_PROBABILITY


def test_the_token_at_which_a_rejection_becomes_likely_is_the_last(step_context):
    # products .9 .81 .729 .656: 1 − .656 > .3 at the fourth; .8 .64: at the second; .6: at the first
    block = block_of(
        {TOP1: [[0.9] * 6, [0.8] * 6, [0.6] * 6, [1.0] * 6, [0.9, 0.9, NAN, NAN, NAN, NAN], [NAN] * 6]}
    )
    policy = Specdecpp(depth=6, min_depth=0)
    assert verified_either_way(policy, step_context(6), block, None) == [4, 2, 1, 6, 2, 0]
    assert spared(policy, step_context(6), block, None) == [2, 4, 5, 0, 0, 0]


def test_the_least_depth_is_kept_whatever_the_estimate(step_context):
    block = block_of({TOP1: [[0.1] * 6, [0.9] * 6, [0.1, NAN, NAN, NAN, NAN, NAN]]})
    policy = Specdecpp(depth=6, min_depth=3)
    assert verified_either_way(policy, step_context(3), block, None) == [3, 4, 1]


def test_with_the_lag_the_last_token_is_left_out(step_context):
    block = block_of({TOP1: [[0.9] * 6, [0.8] * 6, [0.6] * 6, [0.1] * 6]})
    lagging = Specdecpp(depth=6, min_depth=0, lag=True)
    # each a token later than without, and never at the first
    assert verified_either_way(lagging, step_context(4), block, None) == [5, 3, 2, 2]


def test_the_product_is_what_counts_not_the_last_factor(step_context):
    # the fourth token is sure, and the draft as a whole is not
    block = block_of({TOP1: [[0.85, 0.9, 0.9, 1.0, 1.0]]})
    assert verified_either_way(Specdecpp(depth=5), step_context(1), block, None) == [3]


@pytest.mark.parametrize(
    ("estimator", "settings", "signal", "value", "expected"),
    [
        ("constant", {"alpha": 0.8}, TOP1, 0.5, 2),  # .64 at the second
        ("entropy_bound", {"gamma": 0.2}, Signal.ENTROPY, 0.05, 4),  # .9 each
        ("token_probability", {}, Signal.TOKEN_PROBABILITY, 0.9, 4),
        ("confidence", {}, Signal.CONFIDENCE, 0.8, 2),
    ],
)
def test_any_estimator_will_do(estimator, settings, signal, value, expected, step_context):
    policy = Specdecpp(depth=6, min_depth=0, estimator=estimator, estimator_settings=settings)
    assert policy.lossless_class is LosslessClass.STOP_AFTER
    assert policy.needs == (frozenset() if estimator == "constant" else {signal})
    block = block_of({signal: [[value] * 6]})
    assert verified_either_way(policy, step_context(1), block, policy.init(1)) == [expected]


def test_an_estimator_that_learns_is_carried_in_the_state(step_context):
    ctx = step_context(1)
    policy = Specdecpp(depth=6, min_depth=0, estimator="request_ema", estimator_settings={"initial": 0.5})
    block = block_of({TOP1: [[0.5] * 6]})
    state = policy.init(1)
    assert verified_either_way(policy, ctx, block, state) == [1]
    for _ in range(30):
        six = torch.tensor([6])
        state = policy.observe(ctx, Verdict(verify_lengths=six, accepted=six, next_token=six), state)
    assert verified_either_way(policy, ctx, block, state) == [6]


def test_while_the_estimator_warms_up_drafts_are_whole(step_context):
    settings = {"refit_every": 1, "warmup_fits": 2, "min_observations": 1}
    policy = Specdecpp(
        depth=3, threshold=0.0, min_depth=0, estimator="margin_logistic", estimator_settings=settings
    )
    ctx, block = step_context(1), block_of({Signal.MARGIN: [[0.5, 0.5, 0.5]]})
    state, lengths = policy.init(1), []
    for _ in range(3):
        lengths += verified_either_way(policy, ctx, block, state)
        counts = torch.tensor([0])
        verdict = Verdict(verify_lengths=block.lengths, accepted=counts, next_token=counts, draft=block)
        state = policy.observe(ctx, verdict, state)
    assert lengths == [3, 3, 1]


def test_temperatures_change_where_drafts_end(step_context, tmp_path):
    path = tmp_path / "temperatures.json"
    path.write_text(json.dumps({"schema": 1, "temperatures": [2.0] * 6}))
    block = block_of({TOP1: [[0.9] * 6]})
    # logit .9 = ln 9; halved it is ln 3: .75, whose complement is below .3, and .5625, whose is not
    for temperatures in ([2.0] * 6, str(path)):
        policy = Specdecpp(depth=6, min_depth=0, temperatures=temperatures)
        assert verified_either_way(policy, step_context(1), block, None) == [2]


def test_defaults_are_the_authors():
    policy = Specdecpp()
    assert (policy.depth, policy.min_depth, policy.threshold) == (20, 2, 0.3)
    assert policy.needs == {TOP1}
    assert Specdecpp(estimator="constant").built == Constant()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 1.2}, r"^threshold must be in \[0, 1\], got 1.2$"),
        ({"min_depth": -1}, r"^min_depth must be >= 0, got -1$"),
        ({"estimator": "top"}, r"^estimator must be one of .*; did you mean 'top1'\?$"),
        ({"estimator_settings": {"gamma": 1.0}}, r"^estimator top1 has no setting 'gamma'"),
        ({"temperatures": [1.0, 1.0]}, r"^temperatures cover 2 positions, and drafts have up to 20"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Specdecpp(**settings)
