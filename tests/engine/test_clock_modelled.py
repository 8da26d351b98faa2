"""Modelled time is the sum of the cost model's step times, worked out by hand, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from dspark.cost.constant import ConstantCost
from dspark.cost.linear import LinearCost
from dspark.cost.published import published_cost
from dspark.drafters import NgramDrafter
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.engine.clock import PHASES, StepSizes, StepTimer
from dspark.engine.clock_modelled import ModelledClock
from dspark.engine.engine import Engine
from dspark.policies.base import Policy
from dspark.policies.fixed import Fixed
from dspark.types import LosslessClass, Request, SamplingParams
from dspark.workload.arrivals import Poisson
from tests.engine.tools import HalfTrim, Jagged, load, outputs, random_prompts

# Sums of powers of two have no rounding, so times can be compared to the last bit.
TARGET, DRAFT, REST = 2.0**-3, 2.0**-6, 2.0**-7
CONSTANT = ConstantCost(target_s=TARGET, draft_s_per_token=DRAFT, overhead_s=REST)
SECOND = ConstantCost(target_s=1.0, draft_s_per_token=0.0)
"""A pass takes a second, and nothing else any."""


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load(tiny_llama)


def _request(name, arrival_s, *, num_tokens):
    params = SamplingParams(max_new_tokens=num_tokens, ignore_eos=True)
    return Request(request_id=name, prompt_ids=(1, 2, 3), params=params, arrival_s=arrival_s)


def _of_length(prompt_lengths, num_tokens):
    params = SamplingParams(max_new_tokens=num_tokens, ignore_eos=True)
    prompts = [[7 * i + j for j in range(n)] for i, n in enumerate(prompt_lengths)]
    return prompts, params


def test_constant_costs_add_up_to_the_times_of_a_request(target):
    """5 prompt tokens, 9 new ones, drafts of 3 that are all right: a prefill step, then 4 + 4 tokens."""
    engine = Engine(target, DraftModelDrafter(target), Fixed(depth=3), clock=ModelledClock(CONSTANT))
    _, records = outputs(engine, *_of_length([5], 9))
    prefill_s, decode_s = TARGET + REST, 3 * DRAFT + TARGET + REST
    assert [record.wall_s for record in records] == [prefill_s, decode_s, decode_s]
    assert all(record.is_modelled for record in records)
    assert [dict(record.time_split_s) for record in records] == [
        {"draft": depth * DRAFT, "target": TARGET, "policy": 0.0, "verify": 0.0, "rest": REST}
        for depth in (0, 3, 3)
    ]
    done = engine.completions["0"]
    assert (done.ttft_s, done.latency_s) == (prefill_s, prefill_s + 2 * decode_s)
    assert engine.clock.now_s() == prefill_s + 2 * decode_s


def test_linear_costs_are_asked_with_the_sizes_of_every_step(target):
    """Two prompts of 6 and 10 tokens read in chunks of 8 together, 5 new tokens each, drafts of 2, all right.

    step  decode rows  pass tokens        cached tokens     depth   emitted
    0     -            6 + 2 prompt       0                 0       a 1
    1     a            a 3 + b 8 prompt   a 6 + b 2         2       a 3, b 1
    2     a, b         a 1 + b 3          a 6+4-1, b 10     2 of b  a 1 (its last), b 3
    3     b            b 1                b 10+4-1          0       b 1 (its last)
    """
    fixed, kv, token, row = 2.0**-4, 2.0**-12, 2.0**-8, 2.0**-9
    draft_fixed, draft_depth, rest = 2.0**-7, 2.0**-10, 2.0**-11
    cost = LinearCost(
        target_fixed_s=fixed,
        target_kv_s=kv,
        target_token_s=token,
        target_row_s=row,
        draft_fixed_s=draft_fixed,
        draft_depth_s=draft_depth,
        overhead_s=rest,
    )
    engine = Engine(
        target,
        DraftModelDrafter(target),
        Fixed(depth=2),
        max_batch_size=2,
        prefill_chunk=8,
        clock=ModelledClock(cost),
    )
    _, records = outputs(engine, *_of_length([6, 10], 5))
    drafting = draft_fixed + 2 * draft_depth
    expected = [
        fixed + 8 * token + rest,
        drafting + fixed + 8 * kv + 11 * token + 1 * row + rest,
        drafting + fixed + 19 * kv + 4 * token + 2 * row + rest,
        fixed + 13 * kv + 1 * token + 1 * row + rest,
    ]
    assert [record.wall_s for record in records] == expected
    a, b = engine.completions["0"], engine.completions["1"]
    assert (a.ttft_s, a.latency_s) == (expected[0], sum(expected[:3]))
    assert (b.ttft_s, b.latency_s) == (sum(expected[:2]), sum(expected))


def test_what_is_trimmed_was_drafted_but_is_not_in_the_pass(target):
    cost = LinearCost(target_fixed_s=0.0, target_kv_s=0.0, target_token_s=1.0, draft_depth_s=16.0)
    engine = Engine(target, DraftModelDrafter(target), HalfTrim(depth=4), clock=ModelledClock(cost))
    _, records = outputs(engine, *_of_length([5], 12))
    assert [record.wall_s for record in records[1:]] == [
        16.0 * row.drafted + (1 + row.verified) for record in records[1:] for row in record.rows
    ]
    assert any(row.verified < row.drafted for record in records for row in record.rows)


def test_the_same_run_twice_has_bitwise_the_same_times(target):
    def run():
        clock = ModelledClock(published_cost("illusion-llama3.1-8b-h100-ngram"))
        engine = Engine(target, NgramDrafter(), Jagged(), max_batch_size=3, clock=clock)
        params = SamplingParams(max_new_tokens=20, temperature=0.8, ignore_eos=True)
        _, records = outputs(engine, random_prompts(5), params)
        times = [(record.wall_s, tuple(record.time_split_s.items())) for record in records]
        return times, [(c.ttft_s, c.latency_s) for c in engine.completions.values()], clock.now_s()

    assert run() == run()


@dataclass(frozen=True)
class Watching(Policy):
    """Drafts a fixed depth and keeps every step time that it is told."""

    lossless_class: ClassVar[LosslessClass] = LosslessClass.FIXED
    depth: int = 3

    @property
    def max_depth(self):
        return self.depth

    def init(self, num_slots):
        return ()

    def plan(self, ctx, state):
        return torch.full_like(ctx.slots, self.depth)

    def observe(self, ctx, verdict, state):
        return (*state, verdict.step_time_s)


def test_policies_learn_from_the_modelled_step_time(target):
    engine = Engine(target, DraftModelDrafter(target), Watching(), clock=ModelledClock(CONSTANT))
    outputs(engine, *_of_length([5], 9))
    assert engine.policy_state == (3 * DRAFT + TARGET + REST,) * 2


def test_idle_time_is_jumped_over_and_waiting_counts_from_the_arrival(target):
    """A pass a second. a: [0, 2]. b from 10: prefill to 11, decode to 12; c from 10.5 waits for that step."""
    engine = Engine(target, max_batch_size=2, clock=ModelledClock(SECOND))
    arrivals = {"a": 0.0, "b": 10.0, "c": 10.5}
    list(engine.run([_request(name, at, num_tokens=2) for name, at in arrivals.items()]))
    times = {name: (done.ttft_s, done.latency_s) for name, done in engine.completions.items()}
    assert times == {"a": (1.0, 2.0), "b": (1.0, 2.0), "c": (12.0 - 10.5, 13.0 - 10.5)}
    assert engine.clock.now_s() == 13.0


@pytest.mark.parametrize("rate_per_s", [0.1, 0.3, 3.0])
def test_poisson_arrivals_queue_on_modelled_time(target, rate_per_s):
    """One row at a time, n passes of a second for n tokens: the recursion of a queue with one server."""
    arrivals, lengths = Poisson(rate_per_s=rate_per_s, seed=3).arrival_times_s(6), [2, 5, 3, 1, 4, 2]
    requests = [
        _request(str(i), at, num_tokens=n) for i, (at, n) in enumerate(zip(arrivals, lengths, strict=True))
    ]
    engine = Engine(target, max_batch_size=1, clock=ModelledClock(SECOND))
    list(engine.run(requests))
    free_s = 0.0
    for request, arrival_s, length in zip(requests, arrivals, lengths, strict=True):
        start_s = max(arrival_s, free_s)
        free_s = start_s + length
        done = engine.completions[request.request_id]
        assert done.ttft_s == pytest.approx(start_s + 1 - arrival_s)
        assert done.latency_s == pytest.approx(free_s - arrival_s)
    assert engine.clock.now_s() == pytest.approx(free_s)


def test_a_late_clock_still_reaches_the_next_arrival(target):
    """After 10**6 s, 0.1 s more rounds to less than 0.1 s; the request must be admitted all the same."""

    class Patient(ModelledClock):
        waits = 0

        def wait_until_s(self, time_s):
            self.waits += 1
            assert self.waits < 3, "waits for an arrival that never comes"
            super().wait_until_s(time_s)

    start_s = 1e6
    assert (start_s + 0.1) - start_s < 0.1
    clock = Patient(SECOND)
    clock.wait_until_s(start_s)
    engine = Engine(target, clock=clock)
    list(engine.run([_request("late", 0.1, num_tokens=2)]))
    assert engine.completions["late"].latency_s == pytest.approx(2.0)


def test_perfect_drafts_pay_off_at_batch_1_by_the_ratio_of_the_published_fit(target):
    """16 tokens after a prompt of 4: a prefill, then 15 plain steps, or 3 of depth 4.

    Step i emits from i tokens behind the prompt: cached are 4 + i; plain i = 0..14 (sum 105), drafted
    i = 0, 5, 10 (sum 15). Coefficients: arXiv 2601.11580, as in ``dspark/cost/published.py``.
    """
    fixed, kv, token, overhead = 5.88590713e-3, 3.92645679e-8, 2.10103129e-5, 1.20683946e-3
    draft_fixed, draft_kv, draft_depth = 2.13526175e-3, 2.37768493e-9, 8.41429603e-7
    plain_s = 15 * (fixed + token + overhead) + kv * (15 * 4 + 105)
    drafted_s = 3 * (fixed + 5 * token + overhead) + kv * (3 * 4 + 15)
    drafted_s += 3 * (draft_fixed + 4 * draft_depth) + draft_kv * (3 * 4 + 15)
    seconds = []
    for depth in (0, 4):
        clock = ModelledClock(published_cost("illusion-llama3.1-8b-h100-eagle"))
        engine = Engine(target, DraftModelDrafter(target), Fixed(depth=depth), clock=clock)
        _, records = outputs(engine, *_of_length([4], 16))
        seconds.append(sum(record.wall_s for record in records[1:]))
    assert seconds == pytest.approx([plain_s, drafted_s], rel=1e-12)
    assert seconds[0] / seconds[1] == pytest.approx(plain_s / drafted_s, rel=1e-12)
    assert plain_s / drafted_s > 3.8


def test_a_step_without_a_pass_takes_no_time(target):
    engine = Engine(target, clock=ModelledClock(SECOND))
    engine.add(_request("a", 0.0, num_tokens=4))
    engine.cancel("a")
    record = engine.step()
    assert (record.wall_s, record.is_modelled, engine.clock.now_s()) == (0.0, True, 0.0)


@pytest.mark.parametrize("draft_s", [-1.0, -1e-9])
def test_a_cost_model_that_turns_time_back_is_refused(draft_s):
    cost = LinearCost(target_fixed_s=1.0, target_kv_s=0.0, target_token_s=0.0, draft_fixed_s=draft_s)
    clock = ModelledClock(cost)
    sizes = StepSizes(
        num_decode_rows=2, num_pass_tokens=8, context_tokens=30, draft_lengths=torch.tensor([1, 3])
    )
    with pytest.raises(ValueError, match=r"got -1.* s of draft .* 2 decode rows, 8 tokens, 30 .* depth 3"):
        clock.charge(sizes)
    assert clock.now_s() == 0.0


def test_the_wall_is_charged_nothing(target):
    engine = Engine(target)
    timer = StepTimer(engine.clock)
    timer.charge(StepSizes(num_decode_rows=1, num_pass_tokens=1, context_tokens=9, draft_lengths=None))
    assert timer.elapsed_s == 0.0
    timer.lap("target")
    assert timer.elapsed_s == timer.split_s()["target"] > 0.0
    assert tuple(timer.split_s()) == PHASES
    assert not timer.is_modelled
