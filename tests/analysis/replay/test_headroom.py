"""Headroom and its paired intervals: sums that are whole, ends that are fixed, and spread that is true."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch

from dspark.analysis.replay.demand import Demand
from dspark.analysis.replay.headroom import PairedSpeeds, paired_speeds, request_seconds
from dspark.analysis.replay.hindsight import JointHindsight
from dspark.analysis.replay.record import Replay
from dspark.analysis.replay.run import Replayer, replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.base import CostModel, StepTime
from dspark.cost.linear import LinearCost
from dspark.policies.batch_table import BatchTable
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.types import Signal
from tests.engine.tools import HalfTrim, Jagged

DEPTH = 4
COST = LinearCost(
    target_fixed_s=1.0, target_kv_s=1e-4, target_token_s=0.05, draft_fixed_s=0.05, draft_depth_s=0.08
)
POLICY = Confidence(depth=DEPTH, threshold=0.5)
SURE = {"num_resamples": 400, "confidence": 0.95, "seed": 0}


def make_trace(*, num: int = 24, length: int = 31, seed: int = 0) -> AcceptanceTrace:
    """Requests that differ in how predictable they are, and a drafter that knows a little of it."""
    generator = np.random.default_rng(seed)
    count = length - 1
    chance = np.repeat(generator.beta(2, 2, num), count)
    accepted = np.minimum(generator.geometric(1 - chance) - 1, DEPTH)
    # sure of what is right, more often than of what is wrong
    right = np.arange(DEPTH) < accepted[:, None]
    told = np.clip(0.5 + 0.2 * (2 * right - 1) + 0.25 * generator.standard_normal(right.shape), 0, 1)
    return AcceptanceTrace(
        depth=DEPTH,
        request_ids=tuple(str(i) for i in range(num)),
        prompt_tokens=generator.integers(10, 50, num),
        output_tokens=np.full(num, length),
        max_tokens=np.full(num, 1000),
        drafted=np.full(num * count, DEPTH),
        accepted=accepted,
        signals={Signal.TOKEN_PROBABILITY: told},
    )


def replayed_seconds(trace: AcceptanceTrace, batch_size: int) -> dict[str, np.ndarray]:
    """Every fixed depth, a policy and the oracle."""
    entrants = {
        **{f"fixed {depth}": Fixed(depth=depth) for depth in range(DEPTH + 1)},
        "policy": POLICY,
        "oracle": JointHindsight(depth=DEPTH),
    }
    sizes = {"batch_size": batch_size, "cost": COST, "prefill_chunk": 1 << 30}
    return {name: request_seconds(replay(trace, each, **sizes), COST) for name, each in entrants.items()}


@cache
def example(batch_size: int) -> tuple[AcceptanceTrace, dict[str, np.ndarray]]:
    trace = make_trace(num=40)
    return trace, replayed_seconds(trace, batch_size)


def speeds_of(batch_size: int) -> tuple[PairedSpeeds, str]:
    trace, seconds = example(batch_size)
    speeds = paired_speeds(trace.output_tokens, seconds, **SURE)
    return speeds, speeds.best_of(name for name in seconds if name.startswith("fixed"))


# ---- seconds of a request ----------------------------------------------------------------------


def slow_request_seconds(done: Replay, cost: LinearCost) -> list[float]:
    """The same, a step and a row at a time."""
    seconds = [0.0] * done.trace.num_requests
    for_prompts = 0.0
    for step, step_s in enumerate(done.step_s.tolist()):
        rows, passed, read, cached, depth = (
            int(done.steps[name][step])
            for name in ("decode_rows", "pass_tokens", "prefill_tokens", "context_tokens", "depth")
        )
        decode_s = 0.0
        if rows:
            size = {"decode_rows": rows, "tokens": passed - read, "context_tokens": cached}
            time = cost.step_time_s(
                **{k: torch.tensor(v) for k, v in {**size, "draft_tokens": depth}.items()}
            )
            decode_s = float(time.total_s)
        for request in done.rows["request"][done.rows["step"] == step].tolist():
            seconds[request] += decode_s / rows
        for_prompts += step_s - decode_s
    asked = [0] * done.trace.num_requests
    for request in done.demand.requests.tolist():
        asked[request] += int(done.trace.prompt_tokens[request])
    return [own + for_prompts * prompt / sum(asked) for own, prompt in zip(seconds, asked, strict=True)]


@pytest.mark.parametrize("batch_size", [1, 5, 40])
@pytest.mark.parametrize(
    "policy",
    [
        Fixed(depth=0),
        Fixed(depth=3),
        Jagged(depth=4),
        HalfTrim(depth=4),
        BatchTable(ranges=((1, 2, 4), (3, 64, 1))),
        POLICY,
        JointHindsight(depth=DEPTH),
    ],
    ids=lambda policy: type(policy).__name__,
)
@pytest.mark.parametrize("prefill_chunk", [32, 1 << 30])
def test_parts_are_those_of_the_plain_reference_and_add_up(
    policy, batch_size: int, prefill_chunk: int
) -> None:
    trace = make_trace(num=12, length=13)
    done = replay(trace, policy, batch_size=batch_size, cost=COST, prefill_chunk=prefill_chunk)
    seconds = request_seconds(done, COST)
    np.testing.assert_allclose(seconds, slow_request_seconds(done, COST), rtol=1e-10)
    assert seconds.sum() == pytest.approx(done.step_s.sum(), rel=1e-12)
    assert trace.output_tokens.sum() / seconds.sum() == pytest.approx(done.tokens_per_s(), rel=1e-12)


def test_requests_that_come_twice_have_the_seconds_of_both_times() -> None:
    trace = make_trace(num=3, length=9)
    demand = Demand(requests=np.array([0, 0, 2]), arrival_s=np.array([0.0, 2.0, 3.0]))
    done = Replayer(trace, POLICY, batch_size=2, cost=COST, demand=demand).run()
    seconds = request_seconds(done, COST)
    np.testing.assert_allclose(seconds, slow_request_seconds(done, COST), rtol=1e-10)
    assert seconds.sum() == pytest.approx(done.step_s.sum(), rel=1e-12)
    assert seconds[1] == 0


class SlowWhenSmall(CostModel):
    """As measured on a machine on which smaller passes take longer."""

    def step_time_s(self, *, decode_rows, tokens, context_tokens, draft_tokens):
        target_s = 2.0 - tokens.double() / 1000
        zero = torch.zeros_like(target_s)
        return StepTime(draft_s=zero, target_s=target_s, overhead_s=zero)


def test_nobody_is_paid_for_bringing_a_prompt() -> None:
    trace, cost = make_trace(num=6, length=9), SlowWhenSmall()
    done = replay(trace, Fixed(depth=1), batch_size=2, cost=cost)
    rows = done.steps["decode_rows"]
    assert ((done.steps["prefill_rows"] > 0) & (rows > 0)).any()
    alone = float(done.step_s[rows == 0].sum())  # all that prompts cost here
    decoding = np.array([(done.step_s[steps] / rows[steps]).sum() for steps in _steps(done)])
    expected = decoding + alone * trace.prompt_tokens / trace.prompt_tokens.sum()
    np.testing.assert_allclose(request_seconds(done, cost), expected, rtol=1e-10)


def _steps(done: Replay) -> list[np.ndarray]:
    """The steps in which each request decodes."""
    rows = done.rows
    return [rows["step"][rows["request"] == request] for request in range(done.trace.num_requests)]


# ---- headroom ----------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 8])
def test_headroom_is_the_formula_0_for_the_best_depth_and_1_for_the_oracle(batch_size: int) -> None:
    trace, seconds = example(batch_size)
    speeds, best = speeds_of(batch_size)
    tokens = trace.output_tokens.sum()
    plain = {name: tokens / each.sum() for name, each in seconds.items()}
    assert plain[best] == max(plain[name] for name in plain if name.startswith("fixed"))
    ends = {"best_fixed": best, "oracle": "oracle"}
    for name, speed in plain.items():
        found = speeds.headroom(name, **ends)
        assert found is not None
        assert found.value == pytest.approx((speed - plain[best]) / (plain["oracle"] - plain[best]))
        assert found.low <= found.value <= found.high
        assert speeds.ratio(name, best).value == pytest.approx(speed / plain[best])
    for name, value in ((best, 0.0), ("oracle", 1.0)):
        found = speeds.headroom(name, **ends)
        assert found is not None
        assert (found.value, found.low, found.high) == (value, value, value)


def test_where_knowing_brings_nothing_headroom_is_undefined() -> None:
    trace = make_trace(num=10, length=9)
    hopeless = dataclasses.replace(trace, accepted=np.zeros_like(trace.accepted))
    seconds = replayed_seconds(hopeless, 4)
    speeds = paired_speeds(hopeless.output_tokens, seconds, **SURE)
    ends = {"best_fixed": "fixed 0", "oracle": "oracle"}
    assert speeds.best_of(seconds) == "fixed 0"
    assert speeds.room(**ends).value == 0
    assert speeds.headroom("policy", **ends) is None
    assert speeds.headroom("oracle", **ends) is None
    assert speeds.ratio("policy", "fixed 0").high < 1


def test_where_room_may_be_noise_headroom_is_undefined() -> None:
    # one request of forty makes all the difference, and is not in 36 % of the draws
    tokens, even = np.full(40, 10), np.full(40, 1.0)
    better = even.copy()
    better[7] = 0.5
    speeds = paired_speeds(tokens, {"fixed 0": even, "policy": even, "oracle": better}, **SURE)
    ends = {"best_fixed": "fixed 0", "oracle": "oracle"}
    room = speeds.room(**ends)
    assert room.value > 0.01
    assert room.low == 0
    assert speeds.headroom("policy", **ends) is None


# ---- intervals ---------------------------------------------------------------------------------


def test_the_paired_interval_is_much_narrower_than_an_unpaired_one() -> None:
    trace, seconds = example(8)
    paired, best = speeds_of(8)
    other = paired_speeds(trace.output_tokens, seconds, **{**SURE, "seed": 1})
    ratio = paired.ratio("policy", best)
    low, high = np.quantile(paired.drawn["policy"] / other.drawn[best], (0.025, 0.975))
    assert low < ratio.value < high
    assert ratio.high - ratio.low < 0.5 * (high - low)


def test_equal_draws_give_equal_numbers_and_more_confidence_wider_intervals() -> None:
    trace, seconds = example(8)
    first, again = (paired_speeds(trace.output_tokens, seconds, **SURE) for _ in range(2))
    surer = paired_speeds(trace.output_tokens, seconds, **{**SURE, "confidence": 0.99})
    one, two, wide = (each.ratio("policy", "fixed 0") for each in (first, again, surer))
    assert one == two
    assert wide.low < one.low < one.high < wide.high


def test_the_spread_is_that_of_traces_drawn_anew_and_replayed() -> None:
    # what a bootstrap of one trace says, against other traces of the same kind
    batch_size, num, best = 4, 24, "fixed 2"
    ends = {"best_fixed": best, "oracle": "oracle"}
    entrants = {best: Fixed(depth=2), "policy": POLICY, "oracle": JointHindsight(depth=DEPTH)}
    anew: dict[str, list[float]] = {"ratio": [], "headroom": []}
    said: dict[str, list[float]] = {"ratio": [], "headroom": []}
    for seed in range(48):
        trace = make_trace(num=num, length=25, seed=100 + seed)
        seconds = {
            name: request_seconds(replay(trace, each, batch_size=batch_size, cost=COST), COST)
            for name, each in entrants.items()
        }
        speeds = paired_speeds(trace.output_tokens, seconds, **SURE)
        headroom = speeds.headroom("policy", **ends)
        assert headroom is not None
        anew["ratio"].append(speeds.ratio("policy", best).value)
        anew["headroom"].append(headroom.value)
        ratios = speeds.drawn["policy"] / speeds.drawn[best]
        rooms = speeds.drawn["oracle"] / speeds.drawn[best]
        said["ratio"].append(ratios.std())
        said["headroom"].append(((ratios - 1) / (rooms - 1)).std())
    for name, values in anew.items():
        # 48 traces know their own spread to about 10 %
        assert 0.7 < np.mean(said[name]) / np.std(values, ddof=1) < 1.4, name
