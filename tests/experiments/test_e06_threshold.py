"""Points of a sweep against a plain walk, statuses by the numbers, and a live run that is the replay."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.analysis.replay.files import read_trace
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.types import Signal
from experiments.e06_threshold.experiment import (
    DEPTH,
    FALL,
    LIVE,
    LIVE_BATCH,
    LIVE_THRESHOLD,
    RATES,
    RISE,
    SHRINKS,
    STRICT,
    _claims,
    largest_fall,
)
from experiments.e06_threshold.sweep import Point, num_differing, swept
from experiments.reproduce import Status
from tests.experiments.conftest import Shortened


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.8, 1.0])
def test_a_point_is_that_of_a_walk(threshold: float) -> None:
    generator, count = np.random.default_rng(1), 60
    accepted = generator.integers(0, DEPTH + 1, size=count - 1)
    confidence = generator.uniform(size=(count - 1, DEPTH))
    trace = AcceptanceTrace(
        depth=DEPTH,
        request_ids=("one",),
        prompt_tokens=np.array([5]),
        output_tokens=np.array([count]),
        max_tokens=np.array([200]),
        drafted=np.full(count - 1, DEPTH),
        accepted=accepted,
        signals={Signal.CONFIDENCE: confidence},
    )
    place, rounds, verified, kept = 1, 0, 0, 0
    while place < count:
        length = 0
        while length < DEPTH and confidence[place - 1, length] >= threshold:
            length += 1
        right = min(int(accepted[place - 1]), length)
        new = min(right + 1, count - place)
        rounds, verified, kept, place = rounds + 1, verified + length, kept + min(right, new), place + new
    point = swept(trace, threshold, DEPTH)
    assert point.rate == (pytest.approx(kept / verified) if verified else None)
    assert point.verified == pytest.approx(verified / rounds)
    assert point.length == pytest.approx((count - 1) / rounds)


def _points(*rates: float | None, verified: tuple[float, ...] = (7.0, 2.0)) -> list[Point]:
    ends = verified[0], verified[-1]
    return [
        Point(threshold=place / 10, rate=rate, verified=ends[min(place, 1)], length=2.0)
        for place, rate in enumerate(rates)
    ]


def test_statuses_follow_from_the_points() -> None:
    found = {domain: _points(plain / 100, strict / 100) for domain, (plain, strict) in RATES.items()}
    claims = {claim.what: claim for claim in _claims(found, 0, 9)}
    for domain in RATES:
        assert claims[STRICT[domain].what].status is Status.REPRODUCED
        assert claims[RISE[domain].what].status is Status.REPRODUCED
    for claim in (FALL, SHRINKS, LIVE):
        assert claims[claim.what].status is Status.SHAPE_ONLY
    assert claims[LIVE.what].note == "of 9"
    wrong = {domain: _points(0.95, 0.89, verified=(2.0, 2.0)) for domain in RATES}
    assert {claim.status for claim in _claims(wrong, 1, 9)} == {Status.NOT_REPRODUCED}


def test_where_nothing_is_verified_there_is_no_rate() -> None:
    found = {domain: _points(0.2, None) for domain in RATES}
    left = [claim for claim in _claims(found, 0, 9) if claim.status is Status.NOT_RUN]
    assert [claim.what for claim in left] == [claim.what for claim in (*STRICT.values(), *RISE.values())]


@pytest.mark.parametrize(
    ("rates", "fall"), [((0.1, 0.5, 0.9), 0), ((0.1, 0.5, None, 0.4, 0.6, 0.55), 0.1), ((None,), 0)]
)
def test_the_largest_fall_looks_at_neighbours(rates: tuple, fall: float) -> None:
    assert largest_fall(_points(*rates)) == pytest.approx(fall)


def test_the_live_run_is_the_replay_and_would_not_be_another(shortened: Shortened) -> None:
    result, folder = shortened("e06_threshold")
    claims = {claim.what: claim for claim in result.claims}
    assert claims[LIVE.what].ours == 0
    trace = read_trace(folder / "math" / "trace.parquet")
    counts = [
        num_differing(folder / "live", trace, threshold, DEPTH, batch_size=LIVE_BATCH)
        for threshold in (LIVE_THRESHOLD, 0.0)
    ]
    assert counts[0] == (0, counts[0][1])
    assert counts[0][1] > 0
    assert counts[1][0] > 0
    assert claims[SHRINKS.what].status is Status.SHAPE_ONLY
    assert len(result.tables[0].rows) == 30
    assert (folder / "threshold.png").stat().st_size > 1000
