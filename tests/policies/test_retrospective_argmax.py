"""RetrospectiveArgmax: the best length of all, and the bias that Appendix A derives."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
import torch

from dspark.cost.step_table import StepTable
from dspark.drafters import NgramDrafter
from dspark.policies import check_policy
from dspark.policies.retrospective_argmax import RetrospectiveArgmax
from dspark.policies.search import reference
from dspark.types import Draft, LosslessClass, Signal
from dspark.verification import Coupled, Rejection, check_combination
from tests.policies.listed_cost import ListedCost
from tests.policies.one_row_law import completed, output_law, random_curve, random_tables
from tests.policies.random_batches import random_batches

SIGNALS = frozenset(Signal)
A, B = 0, 1


def confident(values: list[float]) -> Draft:
    return Draft(
        tokens=torch.zeros(1, len(values), dtype=torch.int64),
        lengths=torch.tensor([len(values)]),
        q=None,
        signals={Signal.CONFIDENCE: torch.tensor([values], dtype=torch.float64)},
    )


@pytest.fixture
def appendix_a(step_context):
    """Verify length of a draft, on the capacity curve of arXiv 2607.05147, Appendix A."""
    cost = StepTable(tokens=[1, 2, 3], steps_per_s=[1.0, 0.5, 0.45])
    ctx = dataclasses.replace(step_context(1), cost=cost)
    policy = RetrospectiveArgmax(depth=2)
    return lambda draft: int(policy.trim(ctx, draft, policy.init(1)))


def test_appendix_a_verifies_two_tokens_after_a_and_none_after_b(appendix_a):
    assert appendix_a(confident([0.8, 0.9])) == 2  # Θ: 1.0, 0.9, 2.52 · 0.45 = 1.134
    assert appendix_a(confident([0.8, 0.0])) == 0  # Θ: 1.0, 0.9; nothing more can survive


def test_appendix_a_leans_towards_a(appendix_a):
    """Law of the first token: A where it is drawn, for it is accepted for certain; else the target's."""
    target = dict.fromkeys([(), (A,), (B,), (A, A), (A, B), (B, A), (B, B)], Fraction(7, 10))
    drafter = dict.fromkeys(target, Fraction(1, 2))
    head = {**dict.fromkeys(target, Fraction(0)), (): Fraction(8, 10), (A,): Fraction(9, 10)}
    law = output_law(appendix_a, target, drafter, head, 2)
    first = [sum(mass for text, mass in law.items() if text[0] == token) for token in (A, B)]
    assert first == [Fraction(85, 100), Fraction(15, 100)]
    assert first[A] == Fraction(1, 2) + Fraction(1, 2) * Fraction(7, 10)


def test_on_some_random_curves_the_law_is_wrong(step_context):
    """The same curves and tables on which the prefix scheduler is exact."""
    policy, depth, num_biased = RetrospectiveArgmax(depth=3), 3, 0
    for seed in range(30):
        target, drafter, head = random_tables(seed, depth)
        ctx = dataclasses.replace(step_context(1), cost=random_curve(seed, depth))

        def trim(draft, ctx=ctx):
            return int(policy.trim(ctx, draft, policy.init(1)))

        law = output_law(trim, target, drafter, head, depth)
        assert sum(law.values()) == 1
        num_biased += law != completed(target, (), depth + 1)
    assert num_biased >= 3


def test_random_batches_equal_the_loop(step_context):
    policy = RetrospectiveArgmax(depth=8)
    for batch in random_batches(seed=2, count=500, max_rows=20, max_depth=8):
        num_rows = len(batch.lengths)
        ctx = dataclasses.replace(step_context(num_rows), cost=ListedCost(seconds=batch.seconds))
        found = policy.trim(ctx, batch.draft, policy.init(num_rows))
        question = (batch.survival, batch.lengths, batch.seconds.__getitem__)
        assert found.tolist() == reference.retrospective(*question)


def test_a_staircase_is_filled_to_its_edge(step_context):
    """Tokens inside a step are free, so all of them are taken; the early stop would not get there."""
    cost = ListedCost(seconds=[1.0, 1.0, 1.0, 1.7, 1.7, 1.7, 1.7])
    ctx = dataclasses.replace(step_context(1), cost=cost)
    policy = RetrospectiveArgmax(depth=5)
    assert policy.trim(ctx, confident([0.99] * 5), policy.init(1)).tolist() == [5]


class TestClassD:
    """It runs only where a length that knows the draft does no harm."""

    policy = RetrospectiveArgmax(depth=4)

    def test_refused_for_a_drafter_that_samples(self):
        sampled = {"deterministic_drafter": False, "all_greedy": False}
        with pytest.raises(ValueError, match="policy RetrospectiveArgmax .*class D"):
            check_combination(self.policy, Rejection(), **sampled)
        check_combination(self.policy, Coupled(), **sampled)

    def test_allowed_with_deterministic_drafts(self):
        policy = RetrospectiveArgmax(depth=4, estimator="top1")
        assert policy.lossless_class is LosslessClass.SAMPLED
        check_policy(policy, NgramDrafter(), cost_available=True)
        check_combination(policy, Rejection(), deterministic_drafter=True, all_greedy=False)

    def test_an_estimator_of_the_past_makes_it_class_a(self):
        assert RetrospectiveArgmax(depth=4, estimator="request_ema").lossless_class is LosslessClass.FIXED

    def test_a_run_without_a_cost_model_is_refused(self):
        with pytest.raises(ValueError, match="retrospective_argmax needs a cost model"):
            check_policy(self.policy, NgramDrafter(), cost_available=False)
