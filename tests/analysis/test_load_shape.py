"""The shape of DSpark's production curves (arXiv 2607.05147, figures 7 and 8), on a modelled GPU."""

from __future__ import annotations

import pytest

from experiments.e08_load.modelled import DEEP, DYNAMIC, SHALLOW, acceptance_profile, curves, modelled_cost


@pytest.mark.slow
def test_verified_length_falls_with_load_and_throughput_is_never_below_a_fixed_depth() -> None:
    found = curves(
        [SHALLOW, DEEP, DYNAMIC],
        (10.0, 60.0, 120.0, 240.0),
        500,
        trace=acceptance_profile(),
        cost=modelled_cost("h200"),
    )
    dynamic, shallow, deep = found[DYNAMIC], found[SHALLOW], found[DEEP]
    verified = [point.mean_verified for point in dynamic]
    concurrency = [point.mean_concurrency for point in dynamic]
    assert concurrency == sorted(concurrency)
    assert verified == sorted(verified, reverse=True)
    assert verified[0] >= 4
    assert verified[-1] <= 2
    for fixed in (shallow, deep):
        for ours, theirs in zip(dynamic, fixed, strict=True):
            assert ours.modelled_tokens_per_s >= 0.995 * theirs.modelled_tokens_per_s
    # light load: as fast for a user as the deepest; full load: more throughput than either
    assert dynamic[0].modelled_user_tokens_per_s > 0.98 * deep[0].modelled_user_tokens_per_s
    assert dynamic[0].modelled_user_tokens_per_s > 1.5 * shallow[0].modelled_user_tokens_per_s
    assert dynamic[-1].modelled_tokens_per_s > 1.02 * shallow[-1].modelled_tokens_per_s
    assert dynamic[-1].modelled_tokens_per_s > 1.05 * deep[-1].modelled_tokens_per_s
