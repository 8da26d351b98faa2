"""StaleScheduler: the budget of old survivals spent on live ones, and the exact output law."""

from __future__ import annotations

import dataclasses
import random
from itertools import accumulate
from operator import mul

import pytest
import torch

from dspark.cost.published import published_cost
from dspark.policies.search import reference
from dspark.policies.stale_scheduler import StaleScheduler
from dspark.types import Draft, LosslessClass, Signal, Verdict
from tests.policies.listed_cost import ListedCost
from tests.policies.one_row_law import completed, output_law, random_curve, random_tables
from tests.policies.timed import bar_s, fastest_s

NUM_SLOTS, DEPTH = 6, 3
COST = ListedCost(seconds=[1 + 0.25 * (n - n % 3) for n in range(NUM_SLOTS * (DEPTH + 1) + 1)])


def draft_of(confidence: list[list[float]], lengths: list[int]) -> Draft:
    values = torch.tensor(confidence, dtype=torch.float64)
    drafted = torch.arange(values.shape[1]) < torch.tensor(lengths)[:, None]
    return Draft(
        tokens=torch.zeros_like(values, dtype=torch.int64),
        lengths=torch.tensor(lengths),
        q=None,
        signals={Signal.CONFIDENCE: values.where(drafted, torch.nan)},
    )


def verdict_of(draft: Draft | None, verify: torch.Tensor) -> Verdict:
    return Verdict(verify_lengths=verify, accepted=verify, next_token=verify, draft=draft)


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_run_with_rows_that_come_and_go_equals_a_plain_record(staleness, step_context):
    """Slots change hands, rows are drafted for to different lengths or not at all."""
    rng = random.Random(staleness)
    policy = StaleScheduler(depth=DEPTH, staleness=staleness)
    state, record = policy.init(NUM_SLOTS), {}  # slot -> survivals of its occupant's steps
    lively: list[int] = []
    budgets = set()
    for step in range(150):
        if step % 3 == 0:
            left = [slot for slot in lively if rng.random() < 0.7]
            free = [slot for slot in range(NUM_SLOTS) if slot not in left]
            came = [slot for slot in free if rng.random() < 0.5]
            lively = [*left, *came]
            rng.shuffle(lively)
        else:
            came = []
        if not lively:
            continue
        for slot in came:
            record[slot] = []
        ctx = dataclasses.replace(
            step_context(len(lively), num_slots=NUM_SLOTS, step=step, slots=torch.tensor(lively)),
            is_new=torch.tensor([slot in came for slot in lively]),
            cost=COST,
        )
        confidence = [[rng.choice([0.25, 0.5, 1.0, rng.random()]) for _ in range(DEPTH)] for _ in lively]
        lengths = [rng.choice([DEPTH, DEPTH, rng.randint(0, DEPTH)]) for _ in lively]
        draft = None if step % 10 == 9 else draft_of(confidence, lengths)
        verify = torch.zeros_like(ctx.slots)
        if draft is not None:
            verify = policy.trim(ctx, draft, state)
            old = [
                record[slot][-staleness] if len(record[slot]) >= staleness else [1.0] * DEPTH
                for slot in lively
            ]
            budget = sum(reference.retrospective(old, lengths, COST.seconds.__getitem__))
            live = [list(accumulate(row, mul)) for row in confidence]
            assert verify.tolist() == reference.allocated(live, lengths, budget)
            budgets.add(budget - sum(lengths))
        for slot, row, length in zip(lively, confidence, lengths, strict=True):
            # what was not drafted has no confidence, and counts as certain
            known = row[:length] if draft is not None else []
            survival = list(accumulate([*known, *[1.0] * (DEPTH - len(known))], mul))
            record[slot].append(survival)
        state = policy.observe(ctx, verdict_of(draft, verify), state)
    assert len(budgets) > 3, "the budget has to vary for the test to see it"


def test_a_row_without_a_past_counts_survival_one(step_context):
    """Two free tokens beside the rows' own: a doubtful draft is verified nonetheless, if it is the first."""
    cost = ListedCost(seconds=[1.0, 1.0, 1.0, 1.4, 1.4])
    policy = StaleScheduler(depth=3, staleness=1)
    ctx = dataclasses.replace(step_context(1), cost=cost)
    draft = draft_of([[0.1, 0.1, 0.1]], [3])
    state = policy.init(1)
    assert policy.trim(ctx, draft, state).tolist() == [3]  # 4 / 1.4 beats 2 / 1.0
    state = policy.observe(ctx, verdict_of(draft, torch.tensor([3])), state)
    # survivals 0.1, 0.01, 0.001 now set the budget, whatever the live ones are
    confident = draft_of([[0.9, 0.9, 0.9]], [3])
    assert policy.trim(ctx, confident, state).tolist() == [1]  # 1.1 / 1.0 beats 1.111 / 1.4
    newcomer = dataclasses.replace(ctx, is_new=torch.tensor([True]))
    assert policy.trim(newcomer, draft, state).tolist() == [3]


@pytest.mark.parametrize("staleness", [1, 2])
def test_the_output_law_is_the_targets_on_jagged_curves(staleness, step_context):
    policy, depth, num_cut = StaleScheduler(depth=3, staleness=staleness), 3, 0
    for seed in range(8):
        target, drafter, head = random_tables(seed, depth)
        ctx = dataclasses.replace(step_context(1), cost=random_curve(seed, depth))
        past = torch.rand(
            staleness, 1, depth, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        state = dataclasses.replace(policy.init(1), history=past.cumprod(dim=2))
        budget = int(policy.trim(ctx, draft_of([[1.0] * depth], [depth]), state))
        num_cut += 0 < budget < depth

        def trim(draft, ctx=ctx, state=state):
            return int(policy.trim(ctx, draft, state))

        assert output_law(trim, target, drafter, head, depth) == completed(target, (), depth + 1)
    assert num_cut >= 1


def test_the_class_follows_from_what_the_estimator_knows():
    assert StaleScheduler(depth=4).lossless_class is LosslessClass.PRE_TOKEN
    assert StaleScheduler(depth=4, estimator="constant").lossless_class is LosslessClass.FIXED
    sampled = StaleScheduler(depth=4, estimator="token_probability")
    assert sampled.lossless_class is LosslessClass.SAMPLED


@pytest.mark.parametrize("staleness", [0, 3])
def test_other_ages_are_refused(staleness):
    with pytest.raises(ValueError, match=f"staleness must be 1 or 2 steps, got {staleness}"):
        StaleScheduler(depth=4, staleness=staleness)


def test_a_decision_for_256_rows_takes_less_than_a_millisecond(step_context, random_draft):
    policy = StaleScheduler(depth=8)
    cost = published_cost("illusion-llama3.1-8b-h100-ngram")
    ctx = dataclasses.replace(step_context(256), cost=cost)
    draft = random_draft(torch.full((256,), 8), torch.Generator().manual_seed(0))
    state = policy.observe(ctx, verdict_of(draft, draft.lengths), policy.init(256))
    assert fastest_s(lambda: policy.trim(ctx, draft, state)) <= bar_s(1e-3)
