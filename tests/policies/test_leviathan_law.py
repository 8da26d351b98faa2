"""The closed forms of arXiv 2211.17192 against its printed tables and against sums written out."""

from __future__ import annotations

import math

import pytest
import torch

from dspark.policies.leviathan_law import (
    best_depth,
    expected_tokens,
    operations_increase,
    oracle_speedup,
    speedup,
)

TABLE_1 = [  # α, γ, operations, speed, at c = ĉ = 0
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
]

TABLE_4 = [  # γ, α, c, expected speed-up: English-German at T = 0 and 1, then CNN/DM at T = 0 and 1
    (7, 0.75, 0.02, 3.2),
    (7, 0.80, 0.04, 3.3),
    (7, 0.82, 0.11, 2.5),
    (7, 0.62, 0.02, 2.3),
    (5, 0.68, 0.04, 2.4),
    (3, 0.71, 0.11, 2.0),
    (5, 0.65, 0.02, 2.4),
    (5, 0.73, 0.04, 2.6),
    (3, 0.74, 0.11, 2.0),
    (5, 0.53, 0.02, 1.9),
    (3, 0.55, 0.04, 1.8),
    (3, 0.56, 0.11, 1.6),
]

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
BEST = {0.01: [5, 7, 9, 14, 24], 0.02: [4, 6, 8, 11, 19], 0.05: [3, 4, 6, 8, 13], 0.10: [2, 3, 4, 6, 10]}


@pytest.mark.parametrize(("alpha", "gamma", "operations", "speed"), TABLE_1)
def test_table_1_to_its_printed_digits(alpha, gamma, operations, speed):
    assert round(float(operations_increase(alpha, gamma, 0)), 2) == operations
    assert round(float(speedup(alpha, gamma, 0)), 2) == speed


@pytest.mark.parametrize(("gamma", "alpha", "cost_ratio", "expected"), TABLE_4)
def test_table_4_expected_speedups(gamma, alpha, cost_ratio, expected):
    # α and c are rounded in print
    assert float(speedup(alpha, gamma, cost_ratio)) == pytest.approx(expected, abs=0.07)


def test_bigram_drafter():
    assert float(speedup(0.2, 3, 0)) == pytest.approx(1.25, abs=0.005)
    assert float(expected_tokens(0.2, 3)) == pytest.approx(1 + 0.2 + 0.04 + 0.008)


@pytest.mark.parametrize(("alpha", "expected"), [(0.75, 3.3), (0.80, 3.9), (0.87, 4.9)])
def test_lenience_table(alpha, expected):
    assert round(float(speedup(alpha, 8, 0.015)), 1) == expected


@pytest.mark.parametrize("cost_ratio", BEST)
def test_best_depth_table(cost_ratio):
    assert best_depth(torch.tensor(ALPHAS, dtype=torch.float64), cost_ratio, 64).tolist() == BEST[cost_ratio]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.999999, 1.0])
@pytest.mark.parametrize("gamma", [0, 1, 7])
def test_expected_tokens_are_a_sum_of_survivals(alpha, gamma):
    by_hand = sum(alpha**k for k in range(gamma + 1))
    assert float(expected_tokens(alpha, gamma)) == pytest.approx(by_hand, rel=1e-12)


def test_best_depth_is_the_arg_max_of_a_loop_and_positive_exactly_where_alpha_exceeds_c():
    for alpha in (0.0, 0.05, 0.1, 0.11, 0.35, 0.8, 0.97, 1.0):
        for cost_ratio in (0.0, 0.05, 0.1, 0.34, 1.0, 1.5):
            gains = [
                sum(alpha**k for k in range(gamma + 1)) / (gamma * cost_ratio + 1) for gamma in range(13)
            ]
            best = int(best_depth(alpha, cost_ratio, 12))
            assert gains[best] == pytest.approx(max(gains))
            assert (best >= 1) == (alpha > cost_ratio), (alpha, cost_ratio)


def test_one_draft_token_gains_what_corollary_3_9_says():
    for alpha, cost_ratio in ((0.3, 0.1), (0.8, 0.5)):
        assert float(speedup(alpha, 1, cost_ratio)) == pytest.approx((1 + alpha) / (1 + cost_ratio))


def test_oracle_speedup_is_its_series():
    alpha, cost_ratio = 0.8, 0.05
    lengths = range(400)  # accepted tokens n, with probability (1 - α) α^n
    tokens = sum((1 - alpha) * alpha**n * (n + 1) for n in lengths)
    passes = sum((1 - alpha) * alpha**n * (n * cost_ratio + 1) for n in lengths)
    assert float(oracle_speedup(alpha, cost_ratio)) == pytest.approx(tokens / passes)


def test_an_oracle_gains_up_to_about_60_percent():
    """§3.5. With γ* among all depths the gain grows as c falls, from 1.51 at 0.2 to 1.58 at 0.01."""
    alphas = torch.linspace(0.01, 0.995, 400, dtype=torch.float64)
    largest = []
    for cost_ratio in (0.2, 0.1, 0.05, 0.02, 0.01):
        fixed = speedup(alphas, best_depth(alphas, cost_ratio, 300), cost_ratio)
        gains = oracle_speedup(alphas, cost_ratio) / fixed
        assert bool((gains >= 1).all())
        largest.append(float(gains.max()))
    assert largest == sorted(largest)
    assert largest[0] == pytest.approx(1.51, abs=0.005)
    assert largest[-1] == pytest.approx(1.58, abs=0.005)
    assert largest[-1] < math.e / (math.e - 1)


def test_shapes_broadcast():
    alpha = torch.tensor([[0.2], [0.9]])
    assert expected_tokens(alpha, torch.arange(4)).shape == (2, 4)
    assert best_depth(alpha, torch.tensor([0.01, 0.1, 0.2]), 8).shape == (2, 3)
    assert speedup(0.5, 2, 0.1).dtype == torch.float64
