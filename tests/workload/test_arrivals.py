"""Arrival times are pure functions, and Poisson arrivals have the rate they are asked for."""

import math
from itertools import pairwise

import pytest

from dspark.workload.arrivals import ClosedLoop, Poisson


def test_closed_loop_requests_wait_from_the_start():
    assert ClosedLoop(batch_size=4).arrival_times_s(3) == [0.0, 0.0, 0.0]


def test_poisson_times_increase_and_depend_on_the_seed_only():
    times = Poisson(rate_per_s=3.0, seed=7).arrival_times_s(50)
    assert times[0] > 0
    assert times == sorted(times)
    assert times == Poisson(rate_per_s=3.0, seed=7).arrival_times_s(50)
    assert times != Poisson(rate_per_s=3.0, seed=8).arrival_times_s(50)


def test_more_requests_do_not_move_the_earlier_ones():
    arrivals = Poisson(rate_per_s=3.0)
    assert arrivals.arrival_times_s(100)[:10] == arrivals.arrival_times_s(10)
    assert arrivals.arrival_times_s(0) == []


def test_a_double_rate_halves_every_time():
    slow, fast = Poisson(rate_per_s=1.5, seed=3), Poisson(rate_per_s=3.0, seed=3)
    assert fast.arrival_times_s(20) == pytest.approx([t / 2 for t in slow.arrival_times_s(20)])


def test_gaps_are_exponential():
    rate, n = 4.0, 20_000
    times = [0.0, *Poisson(rate_per_s=rate, seed=1).arrival_times_s(n)]
    gaps = sorted(b - a for a, b in pairwise(times))
    # Kolmogorov-Smirnov distance to 1 - exp(-rate * gap); 1.95 / sqrt(n) is exceeded once in a thousand
    distance = max(abs((i + 0.5) / n - (1 - math.exp(-rate * gap))) for i, gap in enumerate(gaps))
    assert distance < 1.95 / math.sqrt(n)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_must_be_positive_numbers(rate):
    with pytest.raises(ValueError, match="rate_per_s must be > 0"):
        Poisson(rate_per_s=rate)


def test_other_bad_values_are_refused():
    with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
        Poisson(rate_per_s=1.0, seed=-1)
    with pytest.raises(ValueError, match="batch_size must be >= 1, got 0"):
        ClosedLoop(batch_size=0)
