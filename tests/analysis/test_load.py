"""The load simulation against queues that can be worked out, and the shape of published load curves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dspark.analysis.load import LatencyGoal, Service, point, simulate
from dspark.analysis.replay.demand import Demand
from dspark.analysis.replay.run import Replayer
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.linear import LinearCost
from dspark.cost.published import published_cost
from dspark.policies.fixed import Fixed
from tests.analysis.test_tuning import make_trace

ONE_SECOND = LinearCost(target_fixed_s=1.0, target_kv_s=0.0, target_token_s=0.0)


def _trace(outputs: list[int], prompts: list[int]) -> AcceptanceTrace:
    count = sum(outputs) - len(outputs)
    return AcceptanceTrace(
        depth=1,
        request_ids=tuple(map(str, range(len(outputs)))),
        prompt_tokens=np.array(prompts),
        output_tokens=np.array(outputs),
        max_tokens=np.array(outputs) + np.array(prompts),
        drafted=np.ones(count, dtype=np.int64),
        accepted=np.zeros(count, dtype=np.int64),
    )


def test_two_requests_by_hand() -> None:
    # a pass takes a second; one row: the second request waits until the first has its three tokens
    trace = _trace([3, 2], [5, 5])
    demand = Demand(requests=np.array([0, 1]), arrival_s=np.array([0.0, 1.5]))
    service = Service(max_batch_size=1)
    done = Replayer(
        trace, Fixed(depth=0), batch_size=1, cost=ONE_SECOND, prefill_chunk=100, demand=demand
    ).run()
    assert done.first_token_s.tolist() == [1.0, 4.0]
    assert done.last_token_s.tolist() == [3.0, 5.0]
    found = point(done, LatencyGoal(max_ttft_s=2.0))
    assert found.modelled_tokens_per_s == pytest.approx(5 / 5)
    assert found.modelled_ttft_s[0] == pytest.approx((1.0 + 2.5) / 2)
    assert found.modelled_user_tokens_per_s == pytest.approx(1.0)
    assert found.modelled_goodput_tokens_per_s == pytest.approx(3 / 5)
    assert found == simulate(
        trace,
        Fixed(depth=0),
        demand,
        cost=ONE_SECOND,
        service=Service(max_batch_size=1, prefill_chunk=100),
        goal=LatencyGoal(max_ttft_s=2.0),
    )
    assert service.cache_tokens is None


def test_an_idle_service_waits_for_the_next_request() -> None:
    trace = _trace([2], [3])
    demand = Demand(requests=np.array([0, 0]), arrival_s=np.array([0.0, 100.0]))
    done = Replayer(trace, Fixed(depth=0), batch_size=4, cost=ONE_SECOND, demand=demand).run()
    assert done.first_token_s.tolist() == [1.0, 101.0]
    assert done.last_token_s.tolist() == [2.0, 102.0]


def test_a_full_cache_keeps_requests_waiting() -> None:
    trace = _trace([4, 4, 4], [6, 6, 6])
    demand = Demand.all_at_once(trace)

    def run(cache_tokens):
        return Replayer(
            trace, Fixed(depth=0), batch_size=3, cost=ONE_SECOND, demand=demand, cache_tokens=cache_tokens
        ).run()

    assert run(None).first_token_s.tolist() == [1.0, 1.0, 1.0]
    assert run(20).first_token_s.tolist() == [1.0, 1.0, 5.0], "room for two of ten tokens each"
    with pytest.raises(ValueError, match="cache_tokens must hold the largest request, 10 tokens, got 9"):
        run(9)


def test_little_s_law_and_poisson_arrivals() -> None:
    # with rows for all and steps of one length, users in the system = rate x seconds that each stays
    trace = make_trace(0.5, num=50, length=21)
    demand = Demand.poisson(trace, num_requests=4000, rate_per_s=2.0, seed=1)
    gaps = np.diff(demand.arrival_s)
    assert gaps.mean() == pytest.approx(0.5, rel=0.05)
    assert gaps.std() == pytest.approx(0.5, rel=0.08)
    tenth = LinearCost(target_fixed_s=0.1, target_kv_s=0.0, target_token_s=0.0)
    found = simulate(
        trace, Fixed(depth=0), demand, cost=tenth, service=Service(max_batch_size=500, prefill_chunk=1 << 20)
    )
    # 20 steps after the first token; the wait for the step in progress is not part of decoding
    assert found.mean_concurrency == pytest.approx(2.0 * 20 * 0.1, rel=0.05)
    assert found.finished == 4000


def test_bursty_arrivals_have_the_variance_they_are_asked_for() -> None:
    trace = make_trace(0.5, num=5, length=5)
    demand = Demand.bursty(trace, num_requests=20_000, rate_per_s=4.0, burstiness=3.0, seed=2)
    gaps = np.diff(demand.arrival_s)
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert (gaps.std() / gaps.mean()) ** 2 == pytest.approx(3.0, rel=0.15)


def test_more_load_means_more_throughput_and_slower_users() -> None:
    trace = make_trace(0.7, num=60, length=41)
    cost = published_cost("illusion-llama3.1-8b-h100-eagle")
    points = [
        simulate(
            trace,
            Fixed(depth=3),
            Demand.poisson(trace, num_requests=400, rate_per_s=rate, seed=0),
            cost=cost,
            service=Service(max_batch_size=64),
        )
        for rate in (2.0, 20.0, 200.0)
    ]
    throughput = [p.modelled_tokens_per_s for p in points]
    speeds = [p.modelled_user_tokens_per_s for p in points]
    assert throughput == sorted(throughput)
    assert speeds == sorted(speeds, reverse=True)
    assert all(math.isfinite(value) for p in points for value in (*p.modelled_ttft_s, *p.modelled_tpot_s))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: Demand.poisson(t, num_requests=0, rate_per_s=1.0, seed=0), "num_requests must be > 0"),
        (lambda t: Demand.poisson(t, num_requests=3, rate_per_s=0.0, seed=0), "rate_per_s must be > 0"),
        (
            lambda t: Demand(requests=np.array([0, 0]), arrival_s=np.array([1.0, 0.0])),
            "arrival times must be >= 0 and ascend",
        ),
        (lambda t: Demand(requests=np.array([0]), arrival_s=np.array([])), "one arrival time for each"),
        (lambda t: Service(max_batch_size=0), "max_batch_size must be >= 1, got 0"),
    ],
)
def test_what_makes_no_load(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(make_trace(0.5, num=2, length=4))
