"""Sequential temperature scaling: the calibration error, the search, and what it does to the order."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from dspark.policies.estimators.temperature_scaling import (
    GRID,
    expected_calibration_error,
    fit_temperatures,
    scaled,
)

TRUE_TEMPERATURES = (2.0, 1.0, 0.5, 2.0**1.5)


def miscalibrated(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Overconfident, honest and underconfident positions, and the accepted counts of whole drafts.

    The truth is the estimate at ``TRUE_TEMPERATURES``: sigmoid(logit(c)/T) is what happens.
    """
    generator = torch.Generator().manual_seed(seed)
    depth = len(TRUE_TEMPERATURES)
    claimed = torch.sigmoid(1.5 + 2 * torch.randn(n, depth, generator=generator, dtype=torch.float64))
    truth = scaled(claimed, torch.tensor(TRUE_TEMPERATURES))
    accepted = (torch.rand(n, depth, generator=generator) < truth).long().cumprod(1).sum(1)
    return claimed, accepted


def survival_error(conditional: torch.Tensor, accepted: torch.Tensor, k: int) -> float:
    return expected_calibration_error(conditional[:, :k].prod(dim=1), accepted >= k).item()


def test_scaling_by_hand():
    # logit .8 = ln 4; halved, ln 2, which is 2/3; doubled, ln 16, which is 16/17
    c = torch.tensor([0.8, 0.5, 0.0, 1.0, math.nan], dtype=torch.float64)
    assert scaled(c, 2.0)[:4].tolist() == pytest.approx([2 / 3, 0.5, 0.0, 1.0], rel=1e-15)
    assert scaled(c, 0.5)[:4].tolist() == pytest.approx([16 / 17, 0.5, 0.0, 1.0], rel=1e-15)
    assert scaled(c, 2.0)[4].isnan()


def test_calibration_error_by_hand():
    # two bins: {.25, .25, .3} mean .8/3 with 1 of 3 true; {.6, 1} mean .8 with 1 of 2 true
    probability = torch.tensor([0.25, 0.25, 0.3, 0.6, 1.0], dtype=torch.float64)
    label = torch.tensor([True, False, False, False, True])
    expected = 3 / 5 * abs(1 / 3 - 0.8 / 3) + 2 / 5 * abs(1 / 2 - 0.8)
    assert expected_calibration_error(probability, label, 2).item() == pytest.approx(expected)
    rows = torch.stack([probability, label.double()])
    assert expected_calibration_error(rows, label, 2).tolist() == pytest.approx([expected, 0.0])


def test_calibration_error_in_one_bin_is_the_bias_and_in_many_it_is_at_least_that():
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(500, generator=generator, dtype=torch.float64)
    label = torch.rand(500, generator=generator) < 0.5
    bias = abs(probability.mean().item() - label.double().mean().item())
    assert expected_calibration_error(probability, label, 1).item() == pytest.approx(bias)
    assert expected_calibration_error(probability, label, 15).item() >= bias


def test_the_grid_is_the_documented_one():
    assert len(GRID) == 49
    assert (GRID[0], GRID[24], GRID[-1]) == (0.125, 1.0, 8.0)
    ratios = {round(b / a, 12) for a, b in pairwise(GRID)}
    assert len(ratios) == 1


def test_finds_the_temperatures_the_outcomes_were_drawn_with():
    claimed, accepted = miscalibrated(100_000, seed=1)
    found = fit_temperatures(claimed, accepted)
    # within two of the grid's eighths of an octave; deep positions have fewer informative samples
    octaves = [math.log2(f / t) for f, t in zip(found, TRUE_TEMPERATURES, strict=True)]
    assert max(map(abs, octaves)) <= 0.25 + 1e-9, found


def test_lowers_the_calibration_error_of_survival_on_other_data():
    claimed, accepted = miscalibrated(20_000, seed=2)
    temperatures = torch.tensor(fit_temperatures(claimed, accepted))
    fresh, outcome = miscalibrated(20_000, seed=3)
    for k in range(1, len(TRUE_TEMPERATURES) + 1):
        before, after = (
            survival_error(fresh, outcome, k),
            survival_error(scaled(fresh, temperatures), outcome, k),
        )
        assert after < 0.015, k
        assert after < before, k
    assert survival_error(fresh, outcome, 1) > 0.05


def test_on_the_data_it_was_fitted_to_no_other_temperature_of_the_grid_is_better():
    claimed, accepted = miscalibrated(2_000, seed=4)
    temperatures = fit_temperatures(claimed, accepted)
    for k in range(1, len(temperatures) + 1):
        kept = torch.tensor(temperatures[: k - 1], dtype=torch.float64)
        errors = {}
        for tried in GRID:
            ts = torch.cat([kept, torch.tensor([tried], dtype=torch.float64)])
            errors[tried] = survival_error(scaled(claimed[:, :k], ts), accepted, k)
        assert errors[temperatures[k - 1]] == pytest.approx(min(errors.values()), abs=1e-12)


def test_the_order_of_a_positions_conditionals_does_not_change():
    claimed, accepted = miscalibrated(5_000, seed=5)
    after = scaled(claimed, torch.tensor(fit_temperatures(claimed, accepted)))
    for k in range(claimed.shape[1]):
        order = claimed[:, k].argsort()
        assert bool((after[order, k].diff() >= 0).all())


def test_honest_estimates_keep_a_temperature_near_one():
    generator = torch.Generator().manual_seed(6)
    honest = torch.rand(50_000, 2, generator=generator, dtype=torch.float64)
    accepted = (torch.rand(50_000, 2, generator=generator) < honest).long().cumprod(1).sum(1)
    assert all(2**-0.25 <= t <= 2**0.25 for t in fit_temperatures(honest, accepted))


def test_positions_count_where_they_were_verified():
    """Rows cut before position 2 say nothing about it, however unlikely they look."""
    claimed, accepted = miscalibrated(4_000, seed=7)
    claimed, accepted = claimed[:, :2], accepted.clamp(max=2)
    verified = torch.full_like(accepted, 2)
    expected = fit_temperatures(claimed, accepted, verified)
    cut_claims = torch.full((4_000, 2), 0.999, dtype=torch.float64)
    one = torch.ones(4_000, dtype=torch.long)
    found = fit_temperatures(
        torch.cat([claimed, cut_claims]), torch.cat([accepted, one]), torch.cat([verified, one])
    )
    assert found[1] == fit_temperatures_of_second(claimed, accepted, found[0])
    undrafted = cut_claims.clone()
    undrafted[:, 1] = torch.nan
    same = fit_temperatures(torch.cat([claimed, undrafted]), torch.cat([accepted, one]))
    assert same == found
    assert expected[1] != 1.0 or expected[0] != 1.0


def fit_temperatures_of_second(claimed: torch.Tensor, accepted: torch.Tensor, first: float) -> float:
    """The best second temperature when the first is given, by a plain loop; nearest to 1 among equals."""
    errors = {}
    for tried in GRID:
        survival = scaled(claimed[:, 0], first) * scaled(claimed[:, 1], tried)
        errors[tried] = expected_calibration_error(survival, accepted >= 2).item()
    return min(errors, key=lambda t: (errors[t], abs(math.log(t))))


def test_a_position_without_samples_takes_the_temperature_before_it():
    claimed, accepted = miscalibrated(3_000, seed=8)
    first = claimed[:, :1]
    padded = torch.cat([first, torch.full((3_000, 2), torch.nan, dtype=torch.float64)], dim=1)
    found = fit_temperatures(padded, accepted.clamp(max=1))
    assert found[0] != 1.0
    assert found == (found[0],) * 3
    none = torch.full((2, 2), torch.nan)
    assert fit_temperatures(none, torch.zeros(2, dtype=torch.long)) == (1.0, 1.0)


def test_equal_errors_take_the_temperature_nearest_to_one():
    """A conditional of 1/2 is the same at every temperature."""
    half = torch.full((10, 1), 0.5)
    assert fit_temperatures(half, torch.tensor([1] * 5 + [0] * 5)) == (1.0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (torch.rand(3), torch.zeros(3)),
            r"conditional must be \[n, K\] and accepted \[n\], got \[3\] and \[3\]",
        ),
        ((torch.rand(3, 2), torch.zeros(2)), r"got \[3, 2\] and \[2\]"),
        (
            (torch.rand(1, 2), torch.tensor([3])),
            r"^counts must be 0 <= accepted <= verified <= drafted in every row",
        ),
        ((torch.rand(1, 2), torch.tensor([0]), torch.tensor([3])), r"in every row, got one that is not$"),
        ((torch.tensor([[1.5]]), torch.tensor([0])), r"probabilities must be in \[0, 1\]"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_temperatures(*arguments)


@pytest.mark.parametrize("grid", [(), (1.0, 0.0), (1.0, -2.0)])
def test_a_grid_without_positive_temperatures_is_refused(grid):
    with pytest.raises(ValueError, match=r"^temperatures must be > 0, and at least one, got"):
        fit_temperatures(torch.rand(2, 1), torch.zeros(2, dtype=torch.long), grid=grid)


def test_an_error_of_nothing_is_refused():
    with pytest.raises(ValueError, match="needs at least one probability, got none"):
        expected_calibration_error(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
