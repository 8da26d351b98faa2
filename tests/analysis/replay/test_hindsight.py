"""Within a step no policy beats the joint oracle; over runs it beats the per-row one where tokens cost."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.analysis.replay.hindsight import Hindsight, JointHindsight
from dspark.analysis.replay.run import replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.linear import LinearCost
from dspark.cost.published import published_cost
from dspark.policies.batch_table import BatchTable
from dspark.policies.fixed import Fixed
from tests.analysis.test_tuning import make_trace
from tests.engine.tools import HalfTrim, Jagged

POLICIES = (
    Fixed(depth=0),
    Fixed(depth=1),
    Fixed(depth=5),
    Jagged(depth=5),
    HalfTrim(depth=5),
    BatchTable(ranges=((1, 2, 4), (3, 8, 1))),
)


def _costs() -> list:
    linear = LinearCost(
        target_fixed_s=1.0, target_kv_s=1e-3, target_token_s=0.15, draft_fixed_s=0.1, draft_depth_s=0.2
    )
    return [linear, published_cost("illusion-llama3.1-8b-h100-eagle")]


def _seconds(cost, count: int, cached: int, tokens, depth):
    time = cost.step_time_s(
        decode_rows=torch.tensor(count),
        tokens=torch.as_tensor(count + tokens),
        context_tokens=torch.tensor(cached),
        draft_tokens=torch.as_tensor(depth),
    )
    return time.total_s.double().numpy()


@given(
    probability=st.floats(0.05, 0.95),
    batch_size=st.integers(1, 9),
    number=st.integers(0, len(POLICIES) - 1),
    seed=st.integers(0, 1000),
    cost_number=st.integers(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_no_policys_step_beats_the_oracle_in_the_same_place(
    probability: float, batch_size: int, number: int, seed: int, cost_number: int
) -> None:
    trace = make_trace(probability, num=6, length=12, seed=seed)
    cost = _costs()[cost_number]
    done = replay(trace, POLICIES[number], batch_size=batch_size, cost=cost, prefill_chunk=1 << 20)
    oracle = JointHindsight(depth=trace.depth)
    starts, rows = trace.starts, done.rows
    for step in range(len(done.step_s)):
        if done.steps["prefill_rows"][step] or not done.steps["decode_rows"][step]:
            continue
        mine = rows["step"] == step
        request, context = rows["request"][mine], rows["context"][mine]
        emitted = context - trace.prompt_tokens[request]
        left = trace.output_tokens[request] - emitted - 1
        usable = np.minimum(trace.max_tokens[request] - context - 1, left)
        seconds = partial(_seconds, cost, len(request), int((context - 1).sum()))
        drafted, verified = oracle.depths(trace, starts[request] + emitted - 1, usable, seconds)
        best = (len(request) + verified.sum()) / float(seconds(verified.sum(), drafted.max(initial=0)))
        policys = rows["emitted"][mine].sum() / done.step_s[step]
        assert best >= policys * (1 - 1e-9)


def test_what_is_cut_is_what_does_not_pay() -> None:
    # three rows that would accept 3, 1 and 0; a pass of up to 5 tokens takes 1 s, a larger one 10 s
    trace = AcceptanceTrace(
        depth=3,
        request_ids=("a", "b", "c"),
        prompt_tokens=np.array([1, 1, 1]),
        output_tokens=np.array([9, 9, 9]),
        max_tokens=np.array([50, 50, 50]),
        drafted=np.full(24, 3),
        accepted=np.array([3] * 8 + [1] * 8 + [0] * 8),
    )
    at, usable = trace.starts, np.array([9, 9, 9])

    def stairs(tokens, depth):
        return np.where(3 + tokens <= 5, 1.0, 10.0) + 0.0 * depth

    drafted, verified = JointHindsight(depth=3).depths(trace, at, usable, stairs)
    assert verified.tolist() == [1, 1, 0], (
        "2 of the 4 right tokens fit; the longest draft gave up its last two"
    )
    assert drafted.tolist() == verified.tolist()

    def deep_is_dear(tokens, depth):
        return 1.0 + 0.0 * tokens + np.where(depth > 1, 5.0, 0.0)

    assert JointHindsight(depth=3).depths(trace, at, usable, deep_is_dear)[1].tolist() == [1, 1, 0]
    free = JointHindsight(depth=3).depths(
        trace, at, usable, lambda tokens, depth: 1.0 + 0.0 * (tokens + depth)
    )
    assert free[1].tolist() == [3, 1, 0]
    assert Hindsight(depth=2).depths(trace, at, usable, stairs)[1].tolist() == [2, 1, 0]
    always = Hindsight(depth=2, always_drafts=True).depths(trace, at, usable, stairs)
    assert [part.tolist() for part in always] == [[2, 1, 1], [2, 1, 0]]


@pytest.mark.parametrize("batch_size", [1, 8, 32])
def test_oracles_gain_over_every_fixed_depth(batch_size: int) -> None:
    trace = make_trace(0.6, num=64)
    for cost in _costs():
        fixed = [
            replay(trace, Fixed(depth=depth), batch_size=batch_size, cost=cost).tokens_per_s()
            for depth in range(trace.depth + 1)
        ]
        joint = replay(trace, JointHindsight(depth=trace.depth), batch_size=batch_size, cost=cost)
        assert joint.tokens_per_s() > max(fixed)
        assert (joint.rows["accepted"] == joint.rows["verified"]).all(), "nothing is verified in vain"
