"""PrefixScheduler: Algorithm 1 as its loop has it, Appendix A, and the exact output law."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dspark.cost.published import published_cost
from dspark.cost.step_table import StepTable
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.policies.search import reference
from dspark.types import Draft, LosslessClass, Signal, Verdict
from tests.policies.listed_cost import ListedCost
from tests.policies.one_row_law import completed, output_law, random_curve, random_tables
from tests.policies.random_batches import random_batches
from tests.policies.timed import bar_s, fastest_s

APPENDIX_A = StepTable(tokens=[1, 2, 3], steps_per_s=[1.0, 0.5, 0.45])


def draft_of(confidence: list[list[float]], signal: Signal = Signal.CONFIDENCE) -> Draft:
    values = torch.tensor(confidence, dtype=torch.float64)
    return Draft(
        tokens=torch.zeros_like(values, dtype=torch.int64),
        lengths=(~values.isnan()).sum(dim=1),
        q=None,
        signals={signal: values},
    )


@pytest.fixture(scope="module")
def lengths(step_context):
    """Verify lengths of a draft under a cost model."""

    def run(policy, draft, cost, **context) -> list[int]:
        num_rows = len(draft.lengths)
        ctx = dataclasses.replace(step_context(num_rows, **context), cost=cost)
        return policy.trim(ctx, draft, policy.init(ctx.num_slots)).tolist()

    return run


@pytest.mark.parametrize("second", [0.9, 0.0])
def test_appendix_a_stops_at_the_first_step_whatever_was_drawn(second, lengths):
    """Θ is 1.0, 1.8 · 0.5 = 0.9, and 2.52 · 0.45 = 1.134 if token A was drawn: the dip ends the search."""
    assert 0.8 * second in (0.0, pytest.approx(0.72))
    assert lengths(PrefixScheduler(depth=2), draft_of([[0.8, second]]), APPENDIX_A) == [0]


def test_the_likeliest_positions_join_while_throughput_rises(lengths):
    # 1 + n/4 s for 2 + n tokens; taken in the order 0.9, 0.8, 0.72, 0.4, 0.36, 0.04
    confidence = [[0.9, 0.8, 0.05], [0.8, 0.5, 0.9]]
    cost = ListedCost(seconds=[0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5])
    # Θ: 2/1 = 2, 2.9/1.25 = 2.32, 3.7/1.5 = 2.467, 4.42/1.75 = 2.526, 4.82/2 = 2.41
    assert lengths(PrefixScheduler(depth=3), draft_of(confidence), cost) == [2, 1]


def test_free_tokens_are_all_verified_but_the_impossible_ones(lengths):
    nan = torch.nan
    draft = draft_of([[0.1, 0.1, 0.1], [0.5, 0.0, 0.9], [0.9, nan, nan]])
    assert lengths(PrefixScheduler(depth=3), draft, ListedCost(seconds=[1.0] * 20)) == [3, 1, 1]


def test_a_staircase_stops_the_search_at_its_first_step(lengths):
    """Two free tokens, then a step: past it would be better, and is not looked for."""
    seconds = [1.0, 1.0, 1.0, 1.7, 1.7, 1.7, 1.7]
    draft = draft_of([[0.99] * 5])
    assert reference.retrospective([[0.99**k for k in range(1, 6)]], [5], seconds.__getitem__) == [5]
    assert lengths(PrefixScheduler(depth=5), draft, ListedCost(seconds=seconds)) == [1]


def test_random_batches_equal_the_loop(lengths):
    for batch in random_batches(seed=1, count=500, max_rows=20, max_depth=8):
        policy = PrefixScheduler(depth=8)
        by_loop = reference.algorithm_1(batch.survival, batch.lengths, batch.seconds.__getitem__)
        assert lengths(policy, batch.draft, ListedCost(seconds=batch.seconds)) == by_loop


@pytest.mark.parametrize("estimator", ["confidence", "top1"])
def test_the_output_law_is_the_targets_on_jagged_curves(estimator, step_context):
    depth, num_cut = 3, 0
    policy = PrefixScheduler(depth=depth, estimator=estimator)
    for seed in range(30):
        target, drafter, head = random_tables(seed, depth)
        ctx = dataclasses.replace(step_context(1), cost=random_curve(seed, depth))
        lengths = []

        def trim(draft, ctx=ctx, lengths=lengths):
            lengths.append(int(policy.trim(ctx, draft, policy.init(1))))
            return lengths[-1]

        assert output_law(trim, target, drafter, head, depth) == completed(target, (), depth + 1)
        num_cut += len(set(lengths)) > 1
    assert num_cut >= 3, "a length that never depends on the draft shows nothing"


def test_the_class_follows_from_what_the_estimator_knows():
    classes = {
        name: PrefixScheduler(depth=4, estimator=name).lossless_class
        for name in ("confidence", "top1", "margin_logistic", "token_probability", "position_window")
    }
    assert classes == {
        "confidence": LosslessClass.PRE_TOKEN,
        "top1": LosslessClass.PRE_TOKEN,
        "margin_logistic": LosslessClass.PRE_TOKEN,
        "token_probability": LosslessClass.SAMPLED,
        "position_window": LosslessClass.FIXED,
    }


def test_settings_reach_the_estimator(lengths):
    """At α = 0.5 the second token is worth 0.25, which does not pay here; at 0.9 it is worth 0.81."""
    cost = ListedCost(seconds=[0, 1.0, 1.3, 1.6, 1.9])
    draft = draft_of([[0.5, 0.5]])
    for alpha, found in ((0.5, [1]), (0.9, [2]), (0.2, [0])):
        policy = PrefixScheduler(depth=2, estimator="constant", estimator_settings={"alpha": alpha})
        assert lengths(policy, draft, cost) == found


class TestWayBack:
    """An estimator that learns goes on seeing whole drafts."""

    draft = draft_of([[0.1] * 3] * 2, Signal.MARGIN)
    costly = ListedCost(seconds=[1.0, 1.0, 1.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0])

    def test_whole_drafts_while_it_warms_up(self, lengths):
        assert lengths(PrefixScheduler(depth=3, estimator="margin_logistic"), self.draft, self.costly) == [
            3,
            3,
        ]

    @pytest.mark.parametrize(
        ("probe_every", "probes"),
        [(None, [99, 199]), (50, [49, 99, 149, 199]), (0, [])],
    )
    def test_whole_drafts_every_so_many_steps(self, probe_every, probes, lengths):
        settings = {"warmup_fits": 0}
        policy = PrefixScheduler(
            depth=3, estimator="margin_logistic", estimator_settings=settings, probe_every=probe_every
        )
        found = {step: lengths(policy, self.draft, self.costly, step=step) for step in range(200)}
        assert [step for step, each in found.items() if each == [3, 3]] == probes
        assert all(each == [0, 0] for step, each in found.items() if step not in probes)

    def test_an_estimator_that_learns_nothing_needs_none(self, lengths):
        draft = draft_of([[0.1] * 3] * 2)
        assert lengths(PrefixScheduler(depth=3), draft, self.costly, step=99) == [0, 0]

    def test_what_was_verified_is_learnt(self, step_context):
        policy = PrefixScheduler(depth=3, estimator="position_window", estimator_settings={"window": 2})
        ctx = dataclasses.replace(step_context(2), cost=self.costly)
        counts = torch.tensor([3, 1])
        verdict = Verdict(verify_lengths=torch.tensor([3, 3]), accepted=counts, next_token=counts)
        state = policy.observe(ctx, verdict, policy.init(2))
        assert state.estimator.reached.sum(dim=0).tolist() == [2, 2, 1]
        assert state.estimator.accepted.sum(dim=0).tolist() == [2, 1, 1]


def test_nothing_drafted_is_nothing_to_decide(lengths):
    policy = PrefixScheduler(depth=4)
    empty = Draft(tokens=torch.empty(0, 0).long(), lengths=torch.empty(0).long(), q=None)
    assert lengths(policy, empty, APPENDIX_A) == []
    assert lengths(policy, draft_of([[torch.nan] * 4] * 2), ListedCost(seconds=[1.0] * 20)) == [0, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": -1}, "depth must be >= 0, got -1"),
        ({"probe_every": -1}, "probe_every must be >= 0 steps, or null, got -1"),
        ({"estimator": "top_1"}, "estimator must be one of .*, got 'top_1'; did you mean 'top1'"),
        ({"estimator_settings": {"alpha": 0.5}}, "estimator confidence has no setting 'alpha'"),
        ({"temperatures": [1.0, 1.0]}, "temperatures cover 2 positions"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as refusal:
        PrefixScheduler(**{"depth": 4, **settings})
    assert "\n" not in str(refusal.value)


def test_temperatures_go_on_top_of_the_estimator(lengths):
    """At temperature T the logit of 0.9, ln 9, becomes ln 9 / T: 0.75 at T = 2, as 3 = sqrt(9)."""
    cost = ListedCost(seconds=[0, 1.0, 1.8, 9.0])
    sharp, cooled = PrefixScheduler(depth=1), PrefixScheduler(depth=1, temperatures=[2.0])
    assert lengths(sharp, draft_of([[0.9]]), cost) == [1]  # 1.9 / 1.8 > 1
    assert lengths(cooled, draft_of([[0.9]]), cost) == [0]  # 1.75 / 1.8 < 1


def test_a_decision_for_256_rows_takes_less_than_a_millisecond(step_context, random_draft):
    policy = PrefixScheduler(depth=8)
    cost = published_cost("illusion-llama3.1-8b-h100-ngram")
    ctx = dataclasses.replace(step_context(256), cost=cost)
    draft = random_draft(torch.full((256,), 8), torch.Generator().manual_seed(0))
    state = policy.init(256)
    assert fastest_s(lambda: policy.trim(ctx, draft, state)) <= bar_s(1e-3)
