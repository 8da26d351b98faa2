"""The published simulator's figures, by replaying its own traces under its own coefficients."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from dspark.analysis.replay.hindsight import Hindsight
from dspark.analysis.replay.illusion import read_illusion
from dspark.analysis.replay.run import replay
from dspark.cost.published import published_cost
from dspark.policies.fixed import Fixed

TRACES = Path(__file__).parents[4] / "shared" / "data" / "acceptance_traces"
PUBLISHED = {  # speed-ups over plain decoding, of the simulator on its data with seed 42 and 300 requests
    "gsm8k": {
        "fixed 1": {1: 1.294, 8: 1.277, 32: 1.232, 128: 1.136},
        "fixed 3": {1: 1.810, 8: 1.726, 32: 1.521, 128: 1.182},
        "fixed 5": {1: 2.010, 8: 1.861, 32: 1.530, 128: 1.070},
        "oracle": {1: 2.129, 8: 2.056, 32: 1.869, 128: 1.538},
        "combined": {1: 2.800, 8: 2.643, 32: 2.276, 128: 1.710},
    },
    "sharegpt": {
        "fixed 1": {1: 1.262, 8: 1.252, 32: 1.224, 128: 1.162},
        "fixed 3": {1: 1.736, 8: 1.666, 32: 1.498, 128: 1.226},
        "fixed 5": {1: 1.928, 8: 1.797, 32: 1.513, 128: 1.123},
        "oracle": {1: 2.099, 8: 2.035, 32: 1.884, 128: 1.640},
        "combined": {1: 3.105, 8: 2.877, 32: 2.446, 128: 1.905},
    },
}


def _speedup(name: str, rule: str, batch_size: int) -> float:
    """Mean tokens/s over mean tokens/s, each request in a batch of its copies, as the simulator does."""
    path = TRACES / f"llama3.1-8b_{name}.jsonl"
    if not path.is_file():
        pytest.skip("the published traces are not here")
    is_combined = rule == "combined"
    trace = read_illusion(path, "combined" if is_combined else "eagle")
    random.seed(42)
    chosen = random.sample(range(trace.num_requests), k=300)
    # its combined drafter is charged like prompt lookup
    cost = published_cost("illusion-llama3.1-8b-h100-" + ("ngram" if is_combined else "eagle"))
    speculating = (
        Fixed(depth=int(rule[-1]))
        if rule.startswith("fixed")
        else Hindsight(depth=trace.depth, always_drafts=True)
    )
    speeds = []
    for policy in (Fixed(depth=0), speculating):
        each = [
            replay(
                trace.of([request] * batch_size),
                policy,
                batch_size=batch_size,
                cost=cost,
                prefill_chunk=1 << 30,
            ).tokens_per_s()
            for request in chosen
        ]
        speeds.append(np.mean(each))
    return float(speeds[1] / speeds[0])


@pytest.mark.parametrize("rule", ["fixed 3", pytest.param("combined", marks=pytest.mark.slow)])
def test_a_published_figure(rule: str) -> None:
    assert _speedup("gsm8k", rule, 8) == pytest.approx(PUBLISHED["gsm8k"][rule][8], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 8, 32, 128])
@pytest.mark.parametrize("rule", PUBLISHED["gsm8k"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_all_published_figures(name: str, rule: str, batch_size: int) -> None:
    assert _speedup(name, rule, batch_size) == pytest.approx(PUBLISHED[name][rule][batch_size], rel=0.01)


def _line(**changes) -> str:
    item = {
        "id": "7",
        "prompt_token_ids": [1, 2, 3],
        "generated_token_ids": [4, 5, 6, 7],
        "acc_eagle": {"acc_len": [2, 1, 4, 1]},
        "acc_ngram": {"acc_len": [1, 3, 1, 1]},
    }
    return json.dumps({**item, **changes})


def test_entries_are_rounds_and_count_one_more_than_the_drafts(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(_line() + "\n" + _line(id="8") + "\n")
    trace = read_illusion(path)
    assert trace.request_ids == ("7/0", "8/1")
    assert trace.output_tokens.tolist() == [4, 4]
    assert trace.accepted.tolist() == [1, 0, 3] * 2
    assert read_illusion(path, "ngram").accepted.tolist() == [0, 2, 0] * 2
    assert read_illusion(path, "combined").accepted.tolist() == [1, 2, 3] * 2
    cost = published_cost("illusion-llama3.1-8b-h100-eagle")
    done = replay(trace.of([0]), Hindsight(depth=3), batch_size=1, cost=cost)
    # after 1 token a round of 2, after 3 one that has 1 token left and needs no draft for it
    assert done.rows["verified"].tolist() == [1, 0], "an oracle knows where the text ends"
    assert done.rows["emitted"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "trace.jsonl:1: not an acceptance trace"),
        (_line(acc_eagle={}), "KeyError 'acc_len'"),
        (_line(acc_eagle={"acc_len": [0, 1]}), "must list counts of 1 and more"),
        ("", "holds no acceptance trace"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_illusion(path)
