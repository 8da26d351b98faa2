"""A replay does what the engine did, step for step, under every policy, batch size and rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dspark.analysis.replay.run import replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.published import published_cost
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.ngram import NgramDrafter
from dspark.metrics.tally import Tally
from dspark.policies.batch_table import BatchTable
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.types import SamplingParams, Signal
from dspark.verification import Coupled, Greedy, Rejection
from dspark.verification.recording import Recording
from tests.analysis.replay.tools import assert_same, live_steps, record, requests_of
from tests.engine.tools import HalfTrim, Jagged, load, random_prompts

DEPTH = 4
POLICIES = {
    "plain": Fixed(depth=0),
    "fixed 2": Fixed(depth=2),
    "fixed 4": Fixed(depth=4),
    "jagged": Jagged(depth=4),
    "half": HalfTrim(depth=4),
    "table": BatchTable(ranges=((1, 2, 4), (3, 8, 1))),
    "confidence": Confidence(depth=4, threshold=0.02),
    "survival": Confidence(depth=4, threshold=0.001, survival=True, signal=Signal.TOP1_PROBABILITY),
}


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def draft_target(tiny_llama_drafter):
    return load(tiny_llama_drafter)


@pytest.fixture(scope="module")
def cost():
    return published_cost("illusion-llama3.1-8b-h100-eagle")


def _params(temperature: float) -> SamplingParams:
    return SamplingParams(max_new_tokens=14, temperature=temperature)


@pytest.fixture(scope="module", params=[("ngram", 0.0), ("model", 0.0), ("model", 0.7)], ids=str)
def world(request, target, draft_target):
    """A drafter, the requests, the rule, and the trace."""
    name, temperature = request.param
    drafter = NgramDrafter() if name == "ngram" else DraftModelDrafter(draft_target)
    prompts = random_prompts(7, seed=3, low=4, high=30)
    prompts += [[1, 2, 3, 4] * 6, [9, 8] * 9]  # something for prompt lookup to find
    requests = requests_of(prompts, _params(temperature))
    rule = Coupled() if temperature else Greedy()
    return drafter, requests, rule, record(target, drafter, requests, rule, DEPTH)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_a_replay_is_the_live_run(target, cost, world, name: str, batch_size: int) -> None:
    drafter, requests, rule, trace = world
    policy = POLICIES[name]
    sizes = {"batch_size": batch_size, "cost": cost, "prefill_chunk": 24}
    live = live_steps(target, drafter, policy, requests, rule, **sizes)
    again = replay(trace, policy, **sizes)
    assert_same(live, again)
    tally = Tally()
    for step in live:
        tally.add(step)
    ours, theirs = again.totals(), tally.totals
    for field in type(ours).__dataclass_fields__:
        if field == "time_split_s":
            for phase, seconds in theirs.time_split_s.items():
                assert ours.time_split_s[phase] == pytest.approx(seconds, rel=1e-9)
        else:
            assert getattr(ours, field) == pytest.approx(getattr(theirs, field), rel=1e-9), field


def test_some_drafts_are_accepted_and_some_are_not(world) -> None:
    drafter, _, _, trace = world
    if isinstance(
        drafter, NgramDrafter
    ):  # a random model does not repeat itself: drafts of any length, all wrong
        assert len(set(trace.drafted.tolist())) > 2
    else:
        assert 0 < trace.accepted.sum() < trace.drafted.sum()


def test_a_trace_of_chosen_requests_is_that_of_each(world) -> None:
    trace = world[3]
    chosen = trace.of([2, 0, 2])
    assert chosen.request_ids == tuple(trace.request_ids[i] for i in (2, 0, 2))
    for place, number in enumerate((2, 0, 2)):
        count = int(trace.output_tokens[number]) - 1
        ours = slice(int(chosen.starts[place]), int(chosen.starts[place]) + count)
        theirs = slice(int(trace.starts[number]), int(trace.starts[number]) + count)
        assert chosen.accepted[ours].tolist() == trace.accepted[theirs].tolist()
        for signal in trace.signals:
            np.testing.assert_array_equal(chosen.signals[signal][ours], trace.signals[signal][theirs])


def _small(**changes) -> AcceptanceTrace:
    fields = {
        "depth": 2,
        "request_ids": ("a",),
        "prompt_tokens": np.array([3]),
        "output_tokens": np.array([4]),
        "max_tokens": np.array([7]),
        "drafted": np.array([2, 2, 1]),
        "accepted": np.array([2, 0, 1]),
    }
    return AcceptanceTrace(**{**fields, **changes})


def test_a_round_by_hand(cost) -> None:
    # from position 1 two drafts are right: tokens 1, 2 and 3 in one step, and that is all there is
    one = replay(_small(), Fixed(depth=2), batch_size=1, cost=cost)
    assert one.rows["emitted"].tolist() == [3]
    assert one.rows["context"].tolist() == [4]
    assert one.steps["pass_tokens"].tolist() == [3, 3]  # the prompt; the last token and two drafts
    plain = replay(_small(), Fixed(depth=0), batch_size=1, cost=cost)
    assert plain.rows["emitted"].tolist() == [1, 1, 1]
    assert plain.tokens_per_s() == pytest.approx(4 / plain.step_s.sum())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drafted": np.array([2, 2])}, "drafted must have the shape"),
        ({"accepted": np.array([3, 0, 1])}, "accepted is out of range"),
        ({"drafted": np.array([3, 2, 1])}, "drafted is out of range"),
        ({"max_tokens": np.array([6])}, "max_tokens is out of range"),
        ({"signals": {Signal.ENTROPY: np.zeros((3, 1))}}, "signal entropy must have the shape"),
    ],
)
def test_traces_that_do_not_go_together(changes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _small(**changes)


def test_what_a_trace_cannot_answer_is_refused(cost) -> None:
    with pytest.raises(ValueError, match="needs the signal token_probability, which the trace does not hold"):
        replay(_small(), Confidence(depth=2), batch_size=1, cost=cost)
    with pytest.raises(ValueError, match="may draft up to 3 tokens, and the trace holds drafts of 2"):
        replay(_small(), Fixed(depth=3), batch_size=1, cost=cost)
    with pytest.raises(ValueError, match="batch_size must be >= 1, got 0"):
        replay(_small(), Fixed(depth=1), batch_size=0, cost=cost)


def test_a_recording_needs_a_text_that_does_not_depend_on_drafts() -> None:
    with pytest.raises(ValueError, match="a trace needs verification greedy or coupled, .* got rejection"):
        Recording(Rejection(), print)


@pytest.mark.slow
def test_hundreds_of_thousands_of_row_steps_a_second(cost) -> None:
    import time

    generator = np.random.default_rng(0)
    num, length, depth = 2048, 129, 7
    drafted = np.full(num * (length - 1), depth)
    trace = AcceptanceTrace(
        depth=depth,
        request_ids=tuple(str(i) for i in range(num)),
        prompt_tokens=np.full(num, 64),
        output_tokens=np.full(num, length),
        max_tokens=np.full(num, 64 + length),
        drafted=drafted,
        accepted=np.minimum(generator.geometric(0.4, len(drafted)) - 1, depth),
        signals={Signal.CONFIDENCE: generator.random((len(drafted), depth))},
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        started = time.perf_counter()
        rows = replay(trace, Fixed(depth=4), batch_size=512, cost=cost, prefill_chunk=1 << 20).num_row_steps
        speed = rows / (time.perf_counter() - started)
    finally:
        torch.set_num_threads(threads)
    assert speed > 200_000, f"{speed:.0f} row-steps a second"
    assert math.isfinite(speed)
