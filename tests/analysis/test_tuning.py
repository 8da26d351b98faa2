"""Tuning finds the depth that a replay finds, is unsure where it should be, and does not flap."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.analysis.replay.run import replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.analysis.tuning import TuneSettings, schedule_of, speeds, tune, walk
from dspark.cost.linear import LinearCost
from dspark.cost.published import published_cost
from dspark.policies.batch_table import BatchTable
from dspark.policies.fixed import Fixed

DEPTH = 5


def make_trace(probability: float, *, num: int = 40, length: int = 61, seed: int = 0) -> AcceptanceTrace:
    """Drafts whose tokens are right with one probability each, one after another."""
    generator = np.random.default_rng(seed)
    count = num * (length - 1)
    return AcceptanceTrace(
        depth=DEPTH,
        request_ids=tuple(str(i) for i in range(num)),
        prompt_tokens=generator.integers(20, 60, num),
        output_tokens=np.full(num, length),
        max_tokens=np.full(num, 1000),
        drafted=np.full(count, DEPTH),
        accepted=np.minimum(generator.geometric(1 - probability, count) - 1, DEPTH),
    )


@pytest.fixture(scope="module")
def cost():
    return published_cost("illusion-llama3.1-8b-h100-eagle")


def test_walks_are_those_of_a_replay(cost) -> None:
    trace = make_trace(0.6, num=6)
    walks = walk(trace, DEPTH)
    for depth in range(DEPTH + 1):
        done = replay(trace, Fixed(depth=depth), batch_size=6, cost=cost, prefill_chunk=10_000)
        rows = done.rows
        for request in range(6):
            mine = rows["request"] == request
            assert walks.rounds[request, depth] == mine.sum()
            assert walks.emitted[request, depth] == rows["emitted"][mine].sum()
            assert walks.pass_tokens[request, depth] == (1 + rows["verified"][mine]).sum()
            assert walks.context_tokens[request, depth] == (rows["context"][mine] - 1).sum()


def test_the_best_depth_of_a_constant_acceptance_is_that_of_the_closed_form() -> None:
    # E[tokens] = (1 - a^(k+1)) / (1 - a) a round that costs k c + 1 (Leviathan et al., arXiv 2211.17192)
    draft = 0.1
    cost = LinearCost(target_fixed_s=1.0, target_kv_s=0.0, target_token_s=0.0, draft_depth_s=draft)
    for probability in (0.3, 0.6, 0.8):
        trace = make_trace(probability, num=400, seed=3)
        settings = TuneSettings(batch_sizes=(1,), max_batch_size=1, confidence=0.5)
        (size,) = tune(trace, cost, settings)
        gains = [(1 - probability ** (k + 1)) / (1 - probability) / (1 + k * draft) for k in range(DEPTH + 1)]
        assert size.best == int(np.argmax(gains))
        np.testing.assert_allclose(np.array(size.speeds) / size.speeds[0], gains, rtol=0.03)


@pytest.mark.parametrize(
    ("num", "tuned_for", "replayed_at"),
    [
        (96, (1, 4, 16, 64, 256), (1, 16, 64)),
        pytest.param(
            160, (1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 8, 64, 128), marks=pytest.mark.slow, id="full"
        ),
    ],
)
def test_depth_falls_with_the_batch_and_the_schedule_beats_every_fixed_depth(
    cost, num: int, tuned_for: tuple[int, ...], replayed_at: tuple[int, ...]
) -> None:
    trace = make_trace(0.65, num=num)
    settings = TuneSettings(batch_sizes=tuned_for, max_batch_size=512)
    sizes = tune(trace, cost, settings)
    chosen = [size.chosen for size in sizes]
    assert chosen == sorted(chosen, reverse=True), "this cost model makes tokens dearer as the batch grows"
    assert chosen[0] > chosen[-1]
    schedule = schedule_of(sizes, settings, cost="published")
    assert schedule.depths[0][0] == 1
    assert schedule.depths[-1][1] == 512
    assert all(a[2] != b[2] for a, b in zip(schedule.depths, schedule.depths[1:], strict=False))
    tuned = BatchTable(ranges=schedule.depths)

    def total(policy) -> float:
        runs = (replay(trace, policy, batch_size=b, cost=cost) for b in replayed_at)
        return float(np.sum([np.log(run.tokens_per_s()) for run in runs]))

    assert all(total(tuned) > total(Fixed(depth=depth)) for depth in range(DEPTH + 1))


def test_depths_that_cannot_be_told_apart_give_the_smaller_one() -> None:
    # a draft costs what it brings: every depth has the same speed, and the draws say so
    trace = make_trace(0.5, num=12, seed=5)
    walks = walk(trace, DEPTH)
    free = LinearCost(target_fixed_s=1.0, target_kv_s=0.0, target_token_s=0.0)
    gains = speeds(walks, free, 1, np.ones((1, 12)))[0]
    priced = LinearCost(
        target_fixed_s=1.0, target_kv_s=0.0, target_token_s=0.0, draft_depth_s=float(gains[1] - 1)
    )
    (size,) = tune(trace, priced, TuneSettings(batch_sizes=(1,), max_batch_size=1, confidence=0.95))
    assert size.chosen == 0
    assert abs(size.speeds[1] / size.speeds[0] - 1) < 1e-9


def test_a_batch_size_keeps_the_depth_before_it_if_that_is_no_worse() -> None:
    trace = make_trace(0.5, num=30, seed=1)
    flat = LinearCost(target_fixed_s=1.0, target_kv_s=0.0, target_token_s=0.0, draft_depth_s=0.26)
    settings = TuneSettings(batch_sizes=(1, 2, 3, 4), max_batch_size=4, tolerance=0.02)
    chosen = [size.chosen for size in tune(trace, flat, settings)]
    assert len(set(chosen)) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_sizes": (2, 4)}, "batch_sizes must ascend from 1"),
        ({"batch_sizes": (1, 4, 4)}, "batch_sizes must ascend from 1"),
        ({"max_batch_size": 3}, "max_batch_size must be at least the last batch size, 4, got 3"),
        ({"confidence": 1.0}, "confidence must be in"),
        ({"tolerance": -0.1}, "tolerance must be in"),
        ({"num_resamples": 3}, "num_resamples must be >= 20"),
    ],
)
def test_settings_that_make_no_sense(changes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TuneSettings(**{"batch_sizes": (1, 4), "max_batch_size": 8, **changes})


def test_a_trace_that_is_too_shallow(cost) -> None:
    settings = TuneSettings(batch_sizes=(1,), max_batch_size=1, max_depth=DEPTH + 1)
    with pytest.raises(ValueError, match=r"max_depth must be in \[1, 5\], the trace's, got 6"):
        tune(make_trace(0.5, num=2), cost, settings)
