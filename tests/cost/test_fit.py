"""The line fitted to a profile, its errors worked by hand, and the knee of a curve."""

from __future__ import annotations

import math

import pytest

from dspark.cost.fit import fit_linear
from dspark.cost.knee import find_knee
from tests.cost.profiles import by_law, profile_of


def test_a_linear_law_is_recovered() -> None:
    def law(rows: int, context: int, tokens: int) -> float:
        return 0.03 + 2e-3 * tokens + 1e-4 * rows + 4e-7 * rows * context

    fit = fit_linear(by_law(law, draft=lambda rows, depth: 1e-3 + 5e-3 * depth + 2e-4 * rows))
    cost = fit.cost
    found = (cost.target_fixed_s, cost.target_token_s, cost.target_row_s, cost.target_kv_s)
    assert found == pytest.approx((0.03, 2e-3, 1e-4, 4e-7), rel=1e-6)
    assert (cost.draft_fixed_s, cost.draft_depth_s, cost.draft_row_s) == pytest.approx((1e-3, 5e-3, 2e-4))
    assert cost.overhead_s == 0.5  # of every step in the profile
    assert fit.target.max_relative < 1e-9
    assert fit.target.r2 == pytest.approx(1)
    assert fit.draft is not None
    assert fit.draft.rmse_s < 1e-12


def test_errors_by_hand() -> None:
    # the best line through (0, 1), (1, 4), (2, 4) is 1.5 + 1.5 x: residuals 0.5, -1, 0.5
    # with tokens 1, 2, 3 it is 0 + 1.5 n, whose level is not negative, so nothing holds it back
    fit = fit_linear(profile_of([(1, 0, 1, 1.0), (1, 0, 2, 4.0), (1, 0, 3, 4.0)]))
    assert fit.cost.target_fixed_s == pytest.approx(0, abs=1e-9)
    assert fit.cost.target_token_s == pytest.approx(1.5)
    assert fit.target.num_points == 3
    assert fit.target.rmse_s == pytest.approx(math.sqrt(1.5 / 3))
    assert fit.target.max_relative == pytest.approx(0.5)  # 0.5 of 1 s
    assert fit.target.median_relative == pytest.approx(0.25)  # of 0.125, 0.25 and 0.5
    assert fit.target.r2 == pytest.approx(1 - 1.5 / 6)  # the mean is 3: 4 + 1 + 1


def test_no_coefficient_goes_below_zero() -> None:
    # seconds that fall with tokens: the best line that does not fall is the mean
    fit = fit_linear(profile_of([(1, 0, 1, 3.0), (1, 0, 2, 2.0), (1, 0, 3, 1.0)]))
    assert fit.cost.target_token_s == 0
    assert fit.cost.target_fixed_s == pytest.approx(2)


def test_terms_that_the_sizes_cannot_tell_apart_are_left_at_zero() -> None:
    # one number of rows and one context: rows and cached tokens never vary
    fit = fit_linear(profile_of([(2, 5, n, 1.0 + n) for n in (2, 4, 8)]))
    assert fit.cost.target_fixed_s == pytest.approx(1)
    assert fit.cost.target_token_s == pytest.approx(1)
    assert (fit.cost.target_row_s, fit.cost.target_kv_s) == (0, 0)


def test_seconds_that_never_vary_have_no_r2() -> None:
    fit = fit_linear(profile_of([(1, 0, n, 0.5) for n in (1, 2, 4)]))
    assert fit.target.r2 is None
    assert fit.cost.target_fixed_s == pytest.approx(0.5)
    assert fit.draft is None
    assert fit.cost.overhead_s == 0


def test_a_drafter_that_takes_no_time_has_no_relative_error() -> None:
    drafts = [(r, d, 0.0, 0.1) for r in (1, 2) for d in (0, 1, 2)]
    fit = fit_linear(profile_of([(1, 0, 1, 1.0), (1, 0, 2, 2.0)], drafts))
    assert fit.draft is not None
    assert (fit.draft.max_relative, fit.draft.median_relative) == (0, 0)
    assert fit.cost.overhead_s == pytest.approx(0.1)


# ---- the knee ----------------------------------------------------------------------------------

SIZES = [1, 2, 4, 8, 16, 32, 64, 128]


def test_the_knee_of_a_hinge_is_where_its_lines_meet() -> None:
    knee = find_knee(SIZES, [0.03 + 0.001 * max(0, n - 20) for n in SIZES])
    assert knee is not None
    assert knee.is_inside
    assert knee.tokens == pytest.approx(20, abs=0.05)  # tried in steps of 63 / 2000
    assert (knee.flat_s, knee.token_s) == pytest.approx((0.03, 0.001), rel=2e-3)


def test_a_straight_line_has_its_knee_at_or_below_the_first_size() -> None:
    knee = find_knee(SIZES, [0.03 + 0.001 * n for n in SIZES])
    assert knee is not None
    assert not knee.is_inside
    assert (knee.tokens, knee.flat_s, knee.token_s) == pytest.approx((1, 0.031, 0.001))


@pytest.mark.parametrize("rise", [0.0, 0.09, -0.5])
def test_a_curve_that_hardly_rises_has_none(rise: float) -> None:
    assert find_knee(SIZES, [1 + rise * n / 128 for n in SIZES]) is None


def test_a_knee_needs_three_sizes() -> None:
    with pytest.raises(ValueError, match=r"a knee needs 3 or more sizes, got \[1, 2\]"):
        find_knee([1, 2], [1.0, 2.0])
