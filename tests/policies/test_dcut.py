"""DCut: the published utilities and choice, the shares' sizes, and when it is exact."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
import torch

from dspark.cost.published import published_cost
from dspark.cost.step_table import StepTable
from dspark.policies.dcut import DCut
from dspark.policies.estimators import survival
from dspark.policies.search import rank, reference, throughput
from dspark.types import Draft, LosslessClass, Signal, Verdict
from tests.policies.listed_cost import ListedCost
from tests.policies.one_row_law import completed, output_law, prefixes, random_curve, random_tables
from tests.policies.random_batches import random_batches
from tests.policies.timed import bar_s, fastest_s

QUARTERS = [0.25, 0.5, 0.75, 1.0]


def draft_of(values: list[list[float]], signal: Signal = Signal.TOP1_PROBABILITY) -> Draft:
    score = torch.tensor(values, dtype=torch.float64)
    return Draft(
        tokens=torch.zeros_like(score, dtype=torch.int64),
        lengths=(~score.isnan()).sum(dim=1),
        q=None,
        signals={signal: score},
    )


class TestPublished:
    """arXiv 2607.14647, Qwen3-8B on H20: 32 rows of 16 drafted tokens, verified by quarters of 512."""

    rows, depth = 32, 16
    accepted = (124.6, 190.8, 200.9, 201.2)  # tokens, by the quarter
    verify_ms = (29.8, 43.1, 56.6, 70.1)
    utility = (4.18, 4.43, 3.55, 2.87)  # accepted tokens per ms

    @property
    def cost(self) -> StepTable:
        """A pass of the rows' own tokens and each number of drafts."""
        return StepTable(
            tokens=[self.rows + 128 * quarter for quarter in (1, 2, 3, 4)],
            target_s=[ms / 1000 for ms in self.verify_ms],
        )

    @property
    def draft(self) -> Draft:
        """Rows alike, whose survival is the same within a quarter of the positions: sums as published."""
        each = [after - before for before, after in zip((0.0, *self.accepted), self.accepted, strict=False)]
        survival = [tokens / 128 for tokens in each for _ in range(4)]
        before = [1.0, *survival]
        return draft_of([[a / b for a, b in zip(survival, before, strict=False)]] * self.rows)

    def context(self, step_context):
        return dataclasses.replace(step_context(self.rows), cost=self.cost)

    def test_the_utilities_are_the_published_ones(self, step_context):
        ctx, draft = self.context(step_context), self.draft
        ranking = rank(survival(draft.signals[Signal.TOP1_PROBABILITY]), draft.lengths)
        values = throughput(ctx, ranking, torch.tensor(self.depth), with_bonus=False)
        per_ms = values[[128, 256, 384, 512]] / 1000
        assert per_ms.tolist() == pytest.approx(self.utility, abs=0.006)

    def test_half_of_the_drafts_is_verified(self, step_context):
        policy = DCut(depth=self.depth)
        lengths = policy.trim(self.context(step_context), self.draft, policy.init(self.rows))
        assert lengths.tolist() == [8] * self.rows


def test_the_share_is_spent_on_the_likeliest_positions(step_context):
    # half of 4 tokens: 0.9 and 0.81 of the first row beat 0.5 of the second
    ctx = dataclasses.replace(step_context(2), cost=ListedCost(seconds=[1.0] * 5 + [5.0] * 2))
    draft = draft_of([[0.9, 0.9], [0.5, 0.5]])
    policy = DCut(depth=2, ratios=[0.5, 1.0])
    assert policy.trim(ctx, draft, policy.init(2)).tolist() == [2, 0]


def test_random_batches_equal_the_loop(step_context):
    policy = DCut(depth=8, estimator="confidence")
    for batch in random_batches(seed=4, count=500, max_rows=20, max_depth=8):
        num_rows = len(batch.lengths)
        ctx = dataclasses.replace(step_context(num_rows), cost=ListedCost(seconds=batch.seconds))
        found = policy.trim(ctx, batch.draft, policy.init(num_rows))
        num_candidates = len(reference.ranked(batch.survival, batch.lengths))
        sizes = [min(-(-sum(batch.lengths) * quarter // 4), num_candidates) for quarter in (1, 2, 3, 4)]
        question = (batch.survival, batch.lengths, batch.seconds.__getitem__)
        assert found.tolist() == reference.bucketed(*question, sizes)


@pytest.mark.parametrize(
    ("share", "drafted", "size"), [(0.1, 10, 1), (0.1, 11, 2), (0.25, 9, 3), (0.7, 10, 7)]
)
def test_a_share_is_rounded_up_and_not_by_a_hair(share, drafted, size, step_context):
    ctx = dataclasses.replace(step_context(1), cost=ListedCost(seconds=[1.0] * 20))
    policy = DCut(depth=drafted, ratios=[share])
    assert policy.trim(ctx, draft_of([[0.9] * drafted]), policy.init(1)).tolist() == [size]


def test_the_bonus_tokens_favour_cheaper_passes(step_context):
    """Two rows: 1.8 of 2 drafts accepted in 1 s, or 3.42 of 4 in 1.8 s; with 2 more tokens either way."""
    ctx = dataclasses.replace(step_context(2), cost=ListedCost(seconds=[1.0] * 5 + [1.8] * 2))
    draft = draft_of([[0.9, 0.9], [0.9, 0.9]])
    for count_bonus, found in ((False, [2, 2]), (True, [1, 1])):
        policy = DCut(depth=2, ratios=[0.5, 1.0], count_bonus=count_bonus)
        assert policy.trim(ctx, draft, policy.init(2)).tolist() == found


def test_with_staleness_the_share_follows_from_an_old_draft(step_context):
    ctx = dataclasses.replace(step_context(1), cost=ListedCost(seconds=[1.0] * 4 + [1.5] * 2))
    policy = DCut(depth=4, ratios=[0.5, 1.0], staleness=1)
    sure, unsure = draft_of([[1.0] * 4]), draft_of([[1.0, 0.9, 0.1, 0.1]])
    state = policy.init(1)
    assert policy.trim(ctx, unsure, state).tolist() == [4]  # survival 1 at first: 4 / 1.5 beats 2 / 1.0
    verdict = Verdict(
        verify_lengths=torch.tensor([4]),
        accepted=torch.tensor([4]),
        next_token=torch.tensor([0]),
        draft=unsure,
    )
    state = policy.observe(ctx, verdict, state)
    assert policy.trim(ctx, sure, state).tolist() == [2]  # sums of 1, 0.9, 0.09, 0.009: 1.9 / 1.0 is best
    verdict = dataclasses.replace(verdict, draft=sure)
    assert policy.trim(ctx, unsure, policy.observe(ctx, verdict, state)).tolist() == [4]


class TestExactness:
    """The published choice looks behind its cut; an old one does not."""

    def law_is_exact(self, policy, seed, step_context) -> bool:
        depth = 3
        target, drafter, head = random_tables(seed, depth)
        ctx = dataclasses.replace(step_context(1), cost=random_curve(seed, depth))
        past = torch.rand(policy.staleness, 1, depth, generator=torch.Generator().manual_seed(seed))
        state = dataclasses.replace(policy.init(1), history=past.double().cumprod(dim=2))

        def trim(draft):
            return int(policy.trim(ctx, draft, state))

        return output_law(trim, target, drafter, head, depth) == completed(target, (), depth + 1)

    def test_the_published_rule_is_class_d_and_biased_if_confidence_depends_on_the_block(self, step_context):
        """One or three of three drafts: after A in the second place the third is sure, after B impossible.

        0.5 accepted in 1 s against (0.5 + 0.45 + 0.405) or (0.5 + 0.45) in 2 s. So of second tokens A is
        verified, and accepted for certain, and B is redrawn. The first draft is always verified, and
        accepted with 0.5 + 0.5 · 0.3 / 0.5; the second token is then A with 0.5 + 0.5 · 0.7, else with 0.7.
        """
        policy = DCut(depth=3, ratios=[1 / 3, 1.0], estimator="confidence")
        assert policy.lossless_class is LosslessClass.SAMPLED
        ctx = dataclasses.replace(step_context(1), cost=ListedCost(seconds=[1.0] * 3 + [2.0] * 2))
        target = dict.fromkeys(prefixes(3), Fraction(7, 10))
        drafter = dict.fromkeys(target, Fraction(1, 2))
        worth = {0: Fraction(9, 10), 1: Fraction(0)}
        head = {**dict.fromkeys(target, Fraction(9, 10)), (): Fraction(1, 2)}
        head |= {prefix: worth[prefix[1]] for prefix in target if len(prefix) == 2}
        law = output_law(lambda draft: int(policy.trim(ctx, draft, policy.init(1))), target, drafter, head, 3)
        second_is_a = sum(mass for text, mass in law.items() if text[1] == 0)
        assert second_is_a == Fraction(8, 10) * Fraction(85, 100) + Fraction(2, 10) * Fraction(7, 10)

    @pytest.mark.parametrize("staleness", [1, 2])
    @pytest.mark.parametrize("estimator", ["confidence", "top1"])
    def test_with_staleness_it_is_class_c_and_exact(self, estimator, staleness, step_context):
        policy = DCut(depth=3, ratios=QUARTERS, estimator=estimator, staleness=staleness)
        assert policy.lossless_class is LosslessClass.PRE_TOKEN
        assert all(self.law_is_exact(policy, seed, step_context) for seed in range(10))

    def test_what_the_estimator_knows_bounds_the_class(self):
        assert DCut(depth=3, estimator="constant").lossless_class is LosslessClass.FIXED
        sampled = DCut(depth=3, estimator="token_probability", staleness=1)
        assert sampled.lossless_class is LosslessClass.SAMPLED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratios": []}, r"ratios must ascend in \(0, 1\], got \[\]"),
        ({"ratios": [0.0, 1.0]}, r"ratios must ascend in \(0, 1\]"),
        ({"ratios": [0.5, 0.5]}, r"ratios must ascend in \(0, 1\]"),
        ({"ratios": [0.5, 1.5]}, r"ratios must ascend in \(0, 1\]"),
        ({"staleness": 3}, "staleness must be 0, 1 or 2 steps, got 3"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DCut(depth=4, **settings)


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_decision_for_256_rows_takes_less_than_a_millisecond(staleness, step_context, random_draft):
    policy = DCut(depth=8, staleness=staleness)
    ctx = dataclasses.replace(step_context(256), cost=published_cost("illusion-llama3.1-8b-h100-ngram"))
    draft = random_draft(torch.full((256,), 8), torch.Generator().manual_seed(0))
    state = policy.init(256)
    assert fastest_s(lambda: policy.trim(ctx, draft, state)) <= bar_s(1e-3)
