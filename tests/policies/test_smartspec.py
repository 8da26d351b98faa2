"""Smartspec: the published goodput curves and choices, what it learns, and its way back."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dspark.cost.linear import LinearCost
from dspark.cost.published import published_cost
from dspark.policies.smartspec import Smartspec
from dspark.types import Draft, LosslessClass, Verdict
from tests.policies.listed_cost import ListedCost
from tests.policies.timed import bar_s, fastest_s

DRAFT_8B, NGRAM_8B, NGRAM_70B = (
    f"smartspec-llama-{which}" for which in ("8b-h100-draft", "8b-h100-ngram", "70b-h100-ngram")
)
TUNER = {"plain_margin": 1.0, "double_count": True}
"""How the authors' auto_tuner.py predicts."""


@pytest.fixture(scope="module")
def context(step_context):
    """A batch of rows with 512 cached tokens each, on a published machine."""

    def make(num_rows: int, cost: str = DRAFT_8B, **changes):
        lengths = torch.full((num_rows,), 513)  # the last one is not in the cache yet
        return dataclasses.replace(
            step_context(num_rows), context_lengths=lengths, cost=published_cost(cost), **changes
        )

    return make


def chosen(policy: Smartspec, ctx) -> int:
    (depth,) = set(policy.plan(ctx, policy.init(ctx.num_rows)).tolist())
    return depth


class TestPublished:
    """The curves and choices of the authors' auto_tuner.py with its coefficients."""

    @pytest.mark.parametrize(
        ("num_rows", "curve"),
        [
            (1, [143.74, 206.54, 251.66, 276.11, 287.51, 290.72, 288.88, 284.01, 277.40]),
            (32, [4250.34, 5637.41, 6536.38, 6873.09, 6897.75, 6753.24, 6521.85, 6251.07, 5968.03]),
            (256, [21956.3, 21864.8, 22148.7, 21107.7, 19649.2]),
        ],
    )
    def test_goodput_at_alpha_07(self, num_rows, curve, context):
        policy = Smartspec(depth=len(curve) - 1, **TUNER)
        found = policy.goodput(context(num_rows), policy.init(num_rows))
        assert found.tolist() == pytest.approx(curve, abs=0.06)

    @pytest.mark.parametrize(
        ("cost", "alpha", "best"),
        [
            (DRAFT_8B, 0.5, [3, 3, 2, 2, 0, 0]),
            (DRAFT_8B, 0.7, [5, 5, 4, 3, 2, 2]),
            (DRAFT_8B, 0.9, [8, 8, 8, 7, 5, 4]),
            (NGRAM_8B, 0.5, [7, 4, 3, 2, 1, 0]),
            (NGRAM_8B, 0.7, [8, 8, 5, 3, 2, 2]),
            (NGRAM_8B, 0.9, [8, 8, 8, 8, 6, 4]),
            (NGRAM_70B, 0.5, [7, 4, 2, 2, 1, 1]),
            (NGRAM_70B, 0.7, [8, 7, 4, 3, 2, 2]),
            (NGRAM_70B, 0.9, [8, 8, 8, 8, 6, 5]),
        ],
    )
    def test_the_best_depths_and_the_one_curve_the_early_stop_fails_on(self, cost, alpha, best, context):
        batches = [1, 8, 32, 64, 128, 256]
        best_of = {
            scan: [
                chosen(Smartspec(depth=8, alpha=alpha, scan=scan, **TUNER), context(b, cost)) for b in batches
            ]
            for scan in ("arg_max", "early")
        }
        assert best_of["arg_max"] == best
        if (cost, alpha) == (DRAFT_8B, 0.7):
            assert best_of["early"] == [*best[:-1], 0]
        else:
            assert best_of["early"] == best

    @pytest.mark.parametrize(("num_rows", "best"), [(8, 8), (64, 4), (256, 2)])
    def test_half_of_the_rows_get_a_draft(self, num_rows, best, context):
        policy = Smartspec(depth=8, match_ratio=0.5, scan="arg_max", **TUNER)
        assert chosen(policy, context(num_rows, NGRAM_8B)) == best


class TestTrap:
    """256 rows, α 0.7: goodput dips at 1 and peaks at 2."""

    @pytest.mark.parametrize(
        ("settings", "depth"),
        [
            ({"scan": "arg_max"}, 2),
            ({"scan": "early"}, 0),
            ({"scan": "early", "plain_margin": 1.1}, 0),  # 24,151.9 for plain decoding
            ({"scan": "early", "first_depth": 1}, 2),  # auto_tuner.py begins at 1
            ({"scan": "arg_max", "plain_margin": 1.1}, 0),
            ({"scan": "arg_max", "plain_margin": 1.1, "first_depth": 1}, 2),
        ],
    )
    def test_each_scan(self, settings, depth, context):
        assert chosen(Smartspec(depth=8, **{**TUNER, **settings}), context(256)) == depth

    def test_the_defaults_are_those_that_fall_into_it(self, context):
        assert chosen(Smartspec(depth=8, double_count=True), context(256)) == 0


def test_input_tokens_are_counted_once_unless_asked(step_context):
    """Seconds that are the tokens of the pass: 2 rows at depth k have 2 + 2k, or 4 + 2k counted twice."""
    cost = LinearCost(target_fixed_s=0.0, target_kv_s=0.0, target_token_s=1.0)
    ctx = dataclasses.replace(step_context(2), cost=cost)
    for double_count, own in ((False, 2), (True, 4)):
        policy = Smartspec(depth=2, alpha=0.5, double_count=double_count)
        expected = [2 / own, 3 / (own + 2), 3.5 / (own + 4)]
        assert policy.goodput(ctx, policy.init(2)).tolist() == pytest.approx(expected)


def test_certain_acceptance_is_no_division_by_zero(step_context):
    ctx = dataclasses.replace(step_context(1), cost=ListedCost(seconds=[0.0, 1.0, 1.0, 1.0]))
    policy = Smartspec(depth=2, alpha=1.0, decay=0.5)
    assert policy.goodput(ctx, policy.init(1)).tolist() == [1.0, 2.0, 3.0]


def verdict_of(verified: list[int], accepted: list[int], drafted: list[int] | None = None) -> Verdict:
    lengths = torch.tensor(verified if drafted is None else drafted)
    draft = Draft(tokens=torch.zeros(len(lengths), int(lengths.max())), lengths=lengths, q=None)
    counts = torch.tensor(accepted)
    return Verdict(verify_lengths=torch.tensor(verified), accepted=counts, next_token=counts, draft=draft)


def test_alpha_is_a_moving_average_over_decided_tokens(context):
    policy = Smartspec(depth=4, decay=0.85)
    state = policy.init(3)
    # 4 of 4, 1 and a rejection, nothing drafted: 5 of 6 decided tokens were accepted
    state = policy.observe(context(3), verdict_of([4, 4, 0], [4, 1, 0]), state)
    alpha = 0.85 * 0.7 + 0.15 * 5 / 6
    assert float(state.alpha) == pytest.approx(alpha)
    # a step without a draft tells nothing
    nothing = dataclasses.replace(verdict_of([0, 0, 0], [0, 0, 0]), draft=None)
    assert float(policy.observe(context(3), nothing, state).alpha) == pytest.approx(alpha)


def test_the_share_of_rows_with_a_draft_is_one_too(context):
    policy = Smartspec(depth=4, decay=0.5, match_ratio=1.0)
    ctx = context(4, remaining_tokens=torch.tensor([50, 50, 50, 1]))  # the last row can use no draft
    state = policy.observe(ctx, verdict_of([4, 2, 0, 0], [1, 1, 0, 0]), policy.init(4))
    assert float(state.match_ratio) == pytest.approx(0.5 * 1.0 + 0.5 * 2 / 3)
    nothing = dataclasses.replace(verdict_of([0] * 4, [0] * 4), draft=None)
    assert float(policy.observe(ctx, nothing, state).match_ratio) == pytest.approx(0.5 * (0.5 + 1 / 3))


def test_a_decision_holds_for_the_interval(context):
    policy = Smartspec(depth=8, interval=3, scan="arg_max", **TUNER)
    state, depths = policy.init(256), []
    for num_rows in (1, 256, 256, 256, 1, 1, 1):
        ctx = context(num_rows)
        depths.append(int(policy.plan(ctx, state)[0]))
        state = policy.observe(ctx, verdict_of([0] * num_rows, [0] * num_rows), state)
        # nothing verified, so the acceptance stays 0.7; the drafts that were given stay at 1 a row
        state = dataclasses.replace(state, match_ratio=torch.tensor(1.0, dtype=torch.float64))
    assert depths == [5, 5, 5, 2, 2, 2, 5]


def test_the_way_back_from_depth_0(step_context):
    """All is rejected, and α sinks until 0 is best; then probes of one token are accepted again."""
    cost = ListedCost(seconds=[1 + 0.05 * n for n in range(40)])
    policy = Smartspec(depth=3, interval=2, probe_every=4, decay=0.5, plain_margin=1.0)
    ctx = dataclasses.replace(step_context(4), cost=cost)
    state, depths = policy.init(4), []
    for step in range(60):
        plan = policy.plan(ctx, state)
        depths.append(int(plan[0]))
        accepted = plan if step >= 30 else torch.zeros_like(plan)
        state = policy.observe(ctx, verdict_of(plan.tolist(), accepted.tolist()), state)
    start = depths.index(0)
    assert start < 20
    assert depths[start + 4 : 30 : 5] == [1] * len(depths[start + 4 : 30 : 5])  # after four steps at 0
    assert sum(depths[start:30]) == len(depths[start + 4 : 30 : 5])
    assert depths[-1] == 3


def test_an_empty_batch_changes_nothing(context):
    policy = Smartspec(depth=4)
    state = policy.init(4)
    assert policy.plan(context(0), state).tolist() == []
    empty = torch.zeros(0, dtype=torch.int64)
    assert (
        policy.observe(context(0), Verdict(verify_lengths=empty, accepted=empty, next_token=empty), state)
        is state
    )


def test_it_is_class_a_and_needs_a_cost_model():
    assert Smartspec(depth=4).lossless_class is LosslessClass.FIXED
    assert Smartspec(depth=4).needs_cost


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": -1}, "depth must be >= 0, got -1"),
        ({"alpha": 1.5}, r"alpha must be in \[0, 1\], got 1.5"),
        ({"match_ratio": -0.1}, r"match_ratio must be in \[0, 1\]"),
        ({"decay": 1.0}, r"decay must be in \[0, 1\), got 1.0"),
        ({"interval": 0}, "interval must be >= 1 steps, got 0"),
        ({"scan": "greedy"}, "scan must be one of early, arg_max, got 'greedy'"),
        ({"first_depth": 2}, "first_depth must be 0 or 1, and <= depth, got 2"),
        ({"depth": 0, "first_depth": 1}, "first_depth must be 0 or 1, and <= depth, got 1"),
        ({"plain_margin": 0.0}, "plain_margin must be > 0, got 0.0"),
        ({"probe_every": 0}, "probe_every must be >= 1 steps, got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Smartspec(**{"depth": 4, **settings})


def test_a_decision_for_256_rows_takes_less_than_a_millisecond(context):
    policy, ctx = Smartspec(depth=8), context(256)
    state = policy.init(256)
    assert fastest_s(lambda: policy.plan(ctx, state)) <= bar_s(1e-3)
