"""Windows of divergences and the ratio of their variances, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from dspark.policies.divergence_ratio import appended, variance_ratio, weighted_variance


def by_hand(values: list[float], decay: float) -> float:
    """Weighted variance, the last value having weight 1."""
    weights = [decay**age for age in range(len(values) - 1, -1, -1)]
    total = sum(weights)
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / total
    return sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True)) / total


def window(values: list[float], width: int) -> list[float]:
    return ([math.nan] * width + values)[-width:]


def test_appended_is_what_a_queue_would_hold():
    generator = torch.Generator().manual_seed(0)
    windows = torch.full((6, 5), torch.nan, dtype=torch.float64)
    queues = [[] for _ in range(6)]
    for _ in range(12):
        values = torch.rand((6, 7), generator=generator)
        counts = torch.randint(0, 8, (6,), generator=generator)
        windows = appended(windows, values, counts)
        for queue, row, count in zip(queues, values.tolist(), counts.tolist(), strict=True):
            queue.extend(row[:count])
        expected = torch.tensor([window(queue, 5) for queue in queues], dtype=torch.float64)
        assert torch.equal(windows.nan_to_num(nan=-1), expected.nan_to_num(nan=-1))


@pytest.mark.parametrize("decay", [0.85, 1.0])
def test_weighted_variance_of_full_and_filling_windows(decay):
    generator = torch.Generator().manual_seed(1)
    values = [torch.rand(count, generator=generator).tolist() for count in (1, 2, 5, 8, 20)]
    windows = torch.tensor([window(row, 8) for row in values], dtype=torch.float64)
    expected = [by_hand(row[-8:], decay) for row in values]
    assert weighted_variance(windows, decay).tolist() == pytest.approx(expected)


def test_an_empty_window_has_no_variance():
    assert weighted_variance(torch.full((2, 4), torch.nan, dtype=torch.float64), 0.85).tolist() == [0, 0]


def test_the_ratio_compares_the_last_few_with_all():
    steady_then_wild = [0.3, 0.31, 0.3, 0.29, 0.3, 0.1, 0.9, 0.2]
    wild_then_steady = [0.1, 0.9, 0.2, 0.8, 0.1, 0.3, 0.31, 0.3]
    windows = torch.tensor([steady_then_wild, wild_then_steady], dtype=torch.float64)
    ratio = variance_ratio(windows, 3, 0.85).tolist()
    assert ratio == pytest.approx(
        [by_hand(row[-3:], 0.85) / by_hand(row, 0.85) for row in (steady_then_wild, wild_then_steady)]
    )
    assert ratio[0] > 1 > ratio[1]


def test_where_nothing_varies_nothing_changes():
    constant = torch.full((1, 6), 0.1, dtype=torch.float64)  # its computed variance is rounding, not 0
    assert variance_ratio(constant, 3, 0.85).tolist() == [1.0]
