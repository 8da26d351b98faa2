"""Tetris: who gets the capacity, and the bias of getting it by one's own token."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch

from dspark.drafters import NgramDrafter
from dspark.policies import check_policy
from dspark.policies.search import reference
from dspark.policies.tetris import Tetris
from dspark.types import Draft, LosslessClass, Signal
from dspark.verification import Coupled, Rejection, check_combination
from tests.policies.random_batches import random_batches
from tests.policies.timed import bar_s, fastest_s


def draft_of(probability: list[list[float]]) -> Draft:
    values = torch.tensor(probability, dtype=torch.float64)
    return Draft(
        tokens=torch.zeros_like(values, dtype=torch.int64),
        lengths=(~values.isnan()).sum(dim=1),
        q=None,
        signals={Signal.TOKEN_PROBABILITY: values},
    )


def test_the_likeliest_prefixes_share_the_capacity(step_context):
    # products 0.9, 0.81, 0.729 | 0.5, 0.45, 0.405 | 0.8, 0.16, 0.144; two a row are six in all
    draft = draft_of([[0.9, 0.9, 0.9], [0.5, 0.9, 0.9], [0.8, 0.2, 0.9]])
    policy = Tetris(depth=2, extra=1)
    assert policy.plan(step_context(3), None).tolist() == [3, 3, 3]
    assert policy.trim(step_context(3), draft, None).tolist() == [3, 2, 1]
    assert Tetris(depth=2, extra=1, capacity=2).trim(step_context(3), draft, None).tolist() == [2, 0, 0]
    assert Tetris(depth=2, extra=1, capacity=0).trim(step_context(3), draft, None).tolist() == [0, 0, 0]


def test_capacity_that_no_draft_uses_is_left(step_context):
    nan = torch.nan
    draft = draft_of([[0.9, nan, nan], [0.5, 0.9, 0.9]])
    assert Tetris(depth=2).trim(step_context(2), draft, None).tolist() == [1, 3]


def test_random_batches_equal_the_loop(step_context):
    for batch in random_batches(seed=5, count=500, max_rows=20, max_depth=8):
        num_rows = len(batch.lengths)
        draft = batch.draft
        signals = {Signal.TOKEN_PROBABILITY: draft.signals[Signal.CONFIDENCE]}
        draft = Draft(tokens=draft.tokens, lengths=draft.lengths, q=None, signals=signals)
        found = Tetris(depth=2, extra=6).trim(step_context(num_rows), draft, None)
        assert found.tolist() == reference.allocated(batch.survival, batch.lengths, 2 * num_rows)


def test_two_requests_for_one_place_are_biased(step_context):
    """p = (0.3, 0.7), q = (0.6, 0.4) for both; the average row comes out as (0.36, 0.64).

    Of equal tokens the first row wins the place, so the rows differ: (0.372, 0.628) and (0.348, 0.652).
    """
    p, q = (Fraction(3, 10), Fraction(7, 10)), (Fraction(6, 10), Fraction(4, 10))
    policy, ctx = Tetris(depth=1, extra=0, capacity=1), step_context(2)
    first_token = [Fraction(0), Fraction(0)]  # that it is A, by row
    admitted = {0: Fraction(0), 1: Fraction(0)}  # by token, over both rows
    for tokens in itertools.product((0, 1), repeat=2):
        weight = q[tokens[0]] * q[tokens[1]]
        lengths = policy.trim(ctx, draft_of([[float(q[token])] for token in tokens]), None).tolist()
        assert sum(lengths) == 1
        for row, (token, verified) in enumerate(zip(tokens, lengths, strict=True)):
            admitted[token] += weight * verified
            if not verified:
                first_token[row] += weight * p[0]
            elif token == 0:
                first_token[row] += weight * min(Fraction(1), p[0] / q[0])
            # B is always accepted, as p(B) > q(B); rejecting A leaves B alone
    assert admitted[0] / (2 * q[0]) == Fraction(7, 10)
    assert admitted[1] / (2 * q[1]) == Fraction(2, 10)
    assert first_token == [Fraction(372, 1000), Fraction(348, 1000)]
    assert sum(first_token) / 2 == Fraction(36, 100) != p[0]


def test_class_d_is_refused_for_samples_and_allowed_elsewhere():
    policy = Tetris(depth=3)
    assert policy.lossless_class is LosslessClass.SAMPLED
    sampled = {"deterministic_drafter": False, "all_greedy": False}
    with pytest.raises(ValueError, match="policy Tetris .*class D"):
        check_combination(policy, Rejection(), **sampled)
    check_combination(policy, Coupled(), **sampled)
    check_policy(policy, NgramDrafter(), cost_available=False)


@pytest.mark.parametrize("field", ["depth", "extra", "capacity"])
def test_negative_numbers_are_refused(field):
    with pytest.raises(ValueError, match=f"^{field} must be >= 0, got -1$"):
        Tetris(**{"depth": 3, field: -1})


def test_a_decision_for_256_rows_takes_less_than_a_millisecond(step_context, random_draft):
    policy, ctx = Tetris(depth=7), step_context(256)
    draft = random_draft(torch.full((256,), 8), torch.Generator().manual_seed(0))
    assert fastest_s(lambda: policy.trim(ctx, draft, None)) <= bar_s(1e-3)
