"""e08: frontiers, statuses from numbers, and points that are not simulated twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dspark.analysis.load import LoadPoint
from experiments.e08_load import modelled
from experiments.e08_load.experiment import MEASURED, MODELLED, measured_claims, modelled_claims
from experiments.e08_load.frontier import frontier, matched_throughput, matched_user_speed
from experiments.e08_load.live import DEEP, DYNAMIC, SHALLOW, Live
from experiments.e08_load.modelled import POLICIES, acceptance_profile, curves, modelled_cost
from experiments.reproduce import Claim, Status

SHAPE, BAD, NONE = Status.SHAPE_ONLY, Status.NOT_REPRODUCED, Status.NOT_RUN


def _point(user: float, all_of: float, *, rows: float = 1.0, verified: float = 1.0) -> LoadPoint:
    return LoadPoint(
        arrivals_per_s=1.0,
        modelled_tokens_per_s=all_of,
        modelled_user_tokens_per_s=user,
        mean_concurrency=rows,
        mean_verified=verified,
        mean_emitted=1.0,
        modelled_ttft_s=(0.0,) * 3,
        modelled_tpot_s=(0.0,) * 3,
        modelled_goodput_tokens_per_s=None,
        finished=1,
    )


def test_frontiers_are_held_together_where_both_are() -> None:
    # throughput times speed is 300 on one, 200 on the other: 1.5 at any speed and at any throughput
    ours = frontier([_point(user, 300 / user) for user in (10.0, 20.0, 40.0)])
    theirs = frontier([_point(user, 200 / user) for user in (5.0, 20.0)])
    where, ratio = matched_user_speed(ours, theirs) or (0, 0)
    assert where == pytest.approx((10 * 20) ** 0.5)
    assert ratio == pytest.approx(1.5)
    where, ratio = matched_throughput(ours, theirs) or (0, 0)
    assert where == pytest.approx((10 * 30) ** 0.5)  # ours has 7.5 to 30, theirs 10 to 40
    assert ratio == pytest.approx(1.5)
    assert matched_user_speed(ours, frontier([_point(1.0, 9.0), _point(2.0, 8.0)])) is None


def _curves(verified: tuple[float, ...], dynamic: float, stale: float = 1.0) -> modelled.Curves:
    """Three loads: speeds are those of fixed 1, and of the schedulers ``dynamic`` times as much."""
    users, alls = (30.0, 20.0, 10.0), (100.0, 200.0, 300.0)

    def points(factor: float) -> list[LoadPoint]:
        return [
            _point(user * factor, all_of * factor, rows=place + 1, verified=length)
            for place, (user, all_of, length) in enumerate(zip(users, alls, verified, strict=True))
        ]

    names = {modelled.SHALLOW: 1.0, modelled.DEEP: 0.9, modelled.DYNAMIC: dynamic, modelled.STALE: stale}
    return {modelled.PLAIN: points(0.5), **{name: points(factor) for name, factor in names.items()}}


def _statuses(claims: list[Claim]) -> list[Status]:
    return [claim.status for claim in claims]


def test_modelled_statuses_follow_from_the_curves() -> None:
    good = modelled_claims(_curves((5.0, 3.0, 1.0), dynamic=1.2, stale=1.19))
    assert [claim.what for claim in good] == [claim.what for claim in MODELLED]
    assert _statuses(good) == [SHAPE] * 7
    light, full, rises, below, *_, stale = good
    assert (light.ours, full.ours, rises.ours) == (5.0, 1.0, 0)
    assert below.ours == pytest.approx(1.2)
    assert stale.ours == pytest.approx(1.19 / 1.2)
    bad = modelled_claims(_curves((3.0, 3.5, 2.5), dynamic=0.9, stale=0.5))
    assert _statuses(bad) == [BAD] * 7
    assert bad[2].ours == 1


def test_a_gain_in_the_papers_range_is_reproduced() -> None:
    """The frontier of fixed 1 with users 1.7 times as fast is 70 % faster at any throughput."""
    found = _curves((5.0, 3.0, 1.0), dynamic=1.0)
    found[modelled.DYNAMIC] = [
        replace(point, modelled_user_tokens_per_s=1.7 * point.modelled_user_tokens_per_s)
        for point in found[modelled.SHALLOW]
    ]
    faster = modelled_claims(found)[5]
    assert faster.ours == pytest.approx(70)
    assert faster.status is Status.REPRODUCED


def _live(dynamic: float, lengths: tuple[float, float], num_differing: int = 0) -> Live:
    speeds = {(SHALLOW, 1): 10.0, (DEEP, 1): 20.0, (SHALLOW, 16): 80.0, (DEEP, 16): 40.0}
    own = {(DYNAMIC, 1): 20.0, (DYNAMIC, 16): 80.0 * dynamic}
    verified = {(DYNAMIC, 1): lengths[0], (DYNAMIC, 16): lengths[1]}
    return Live(
        batch_sizes=(1, 16), tokens_per_s={**speeds, **own}, verified=verified, num_differing=num_differing
    )


def test_measured_statuses_follow_from_the_runs() -> None:
    good = measured_claims(_live(1.1, (4.0, 2.0)))
    assert [claim.what for claim in good] == [claim.what for claim in MEASURED]
    assert _statuses(good) == [SHAPE] * 3
    assert [claim.ours for claim in good] == [0.5, 1.0, 0]  # the worst batch size is 1
    assert _statuses(measured_claims(_live(0.9, (2.0, 3.0), num_differing=1))) == [BAD] * 3
    short = replace(_live(1.1, (0.0, 0.0)), tokens_per_s={})
    assert _statuses(measured_claims(short)) == [NONE, NONE, SHAPE]


def test_the_invented_drafter_is_as_its_docstring_says() -> None:
    trace = acceptance_profile()
    assert (trace.accepted >= 1).mean() == pytest.approx(0.8, abs=0.01)
    assert 1 + trace.accepted.mean() == pytest.approx(3.8, abs=0.05)
    (confidence,) = trace.signals.values()
    survival = confidence.cumprod(1)
    for k in range(trace.depth):
        share, error = (trace.accepted > k).mean(), np.sqrt(0.25 / trace.num_positions)
        assert share == pytest.approx(survival[:, k].mean(), abs=4 * error)


def test_points_are_kept_and_not_simulated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "points.jsonl"
    common = {"trace": acceptance_profile(4, 12), "cost": modelled_cost(), "path": path}
    first = curves(list(POLICIES), (50.0,), 6, **common)
    assert all(point.finished == 6 for (point,) in first.values())
    with path.open("a") as file:
        file.write('{"policy": "fixed 0", "ra')  # as a kill leaves it

    def refuse(*_: object, **__: object) -> LoadPoint:
        raise AssertionError("simulated again")

    monkeypatch.setattr(modelled, "simulate", refuse)
    assert curves(list(POLICIES), (50.0,), 6, **common) == first
    with pytest.raises(AssertionError, match="simulated again"):
        curves(["fixed 0"], (60.0,), 6, **common)
