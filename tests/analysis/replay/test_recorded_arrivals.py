"""Arrivals out of a log: their times, the requests that stand for theirs, and what is no log."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dspark.analysis.load import Service, simulate
from dspark.analysis.replay.arrival_log import ArrivalLog, Columns, read_arrivals
from dspark.analysis.replay.demand import Demand
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.linear import LinearCost
from dspark.policies.fixed import Fixed

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,374,44
2023-11-16 18:17:04,396,109
2023-11-16 18:17:04.0299601,879,55
"""


def _file(tmp_path: Path, text: str, name: str = "log.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def _trace(prompts: list[int], outputs: list[int]) -> AcceptanceTrace:
    """Requests of these sizes, of whose drafts nothing is right."""
    count = sum(outputs) - len(outputs)
    return AcceptanceTrace(
        depth=1,
        request_ids=tuple(map(str, range(len(prompts)))),
        prompt_tokens=np.array(prompts),
        output_tokens=np.array(outputs),
        max_tokens=np.array(prompts) + np.array(outputs),
        drafted=np.ones(count, dtype=np.int64),
        accepted=np.zeros(count, dtype=np.int64),
    )


def test_dates_of_a_public_trace_become_seconds_and_keep_their_fractions(tmp_path: Path) -> None:
    log = read_arrivals(_file(tmp_path, AZURE))
    np.testing.assert_allclose(log.arrival_s, [0, 0.02004, 0.0500001], atol=1e-9)
    assert log.prompt_tokens is not None
    assert log.output_tokens is not None
    assert log.prompt_tokens.tolist() == [374, 396, 879]
    assert log.output_tokens.tolist() == [44, 109, 55]


def test_dates_with_a_zone_and_without_are_one_clock(tmp_path: Path) -> None:
    text = "TIMESTAMP\n2024-05-10 00:00:00.5+00:00\n2024-05-10 02:00:03+02:00\n"
    log = read_arrivals(_file(tmp_path, text))
    np.testing.assert_allclose(log.arrival_s, [0, 2.5], atol=1e-9)
    assert log.prompt_tokens is None
    assert log.output_tokens is None


def test_seconds_of_json_lines_are_sorted_with_their_counts(tmp_path: Path) -> None:
    items = [
        {"arrival_s": 1_700_000_012.25, "output_tokens": 7},
        {"arrival_s": 1_700_000_010, "output_tokens": 5},
    ]
    path = _file(tmp_path, "\n".join(map(json.dumps, items)), "log.jsonl")
    log = read_arrivals(path)
    assert log.arrival_s.tolist() == [0, 2.25]
    assert log.prompt_tokens is None
    assert log.output_tokens is not None
    assert log.output_tokens.tolist() == [5, 7]


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = _file(tmp_path, "when,timestamp,length\n3,x,20\n1,y,10\n")
    log = read_arrivals(path, Columns(time="when", output_tokens="length"))
    assert log.arrival_s.tolist() == [0, 2]
    assert log.output_tokens is not None
    assert log.output_tokens.tolist() == [10, 20]
    with pytest.raises(ValueError, match="has no column 'size': it has when, timestamp, length"):
        read_arrivals(path, Columns(time="when", output_tokens="size"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.csv", "", "cannot read .*log.csv: No columns"),
        ("log.csv", "arrival_s\n", "log.csv holds no arrival"),
        ("log.txt", "arrival_s\n1\n", "is a .csv or a .jsonl file, got log.txt"),
        ("log.csv", "time,size\n1,2\n", r"a column arrival_s or TIMESTAMP, got time, size: name yours with"),
        ("log.csv", "arrival_s\n1\nsoon\n", "row 2: arrival_s must be a number of seconds, got 'soon'"),
        ("log.csv", "arrival_s,prompt_tokens\n1,1\n,2\n", "row 2: arrival_s must be a number of seconds"),
        ("log.csv", "TIMESTAMP\n2023-11-16 18:17:03\n2023-11-36\n", "row 2: TIMESTAMP .*got '2023-11-36'"),
        ("log.csv", "arrival_s,output_tokens\n1,2.5\n", "row 1: output_tokens must be a whole number .*2.5"),
        ("log.csv", "arrival_s,output_tokens\n1,3\n2,\n", "row 2: output_tokens must be a whole number"),
        ("log.csv", "arrival_s,prompt_tokens\n1,-3\n", "row 1: prompt_tokens must be a whole number"),
        ("log.jsonl", '{"arrival_s": 1}\n{"arr', "cannot read .*log.jsonl"),
    ],
)
def test_what_is_no_log(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_arrivals(_file(tmp_path, text, name))
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no log of arrivals"):
        read_arrivals(tmp_path / "none.csv")


def _log(size: int, **counts: list[int]) -> ArrivalLog:
    told = {name: np.array(values) for name, values in counts.items()}
    nothing = {"prompt_tokens": None, "output_tokens": None}
    return ArrivalLog(arrival_s=np.arange(size) * 3.0, **{**nothing, **told})


def test_each_arrival_is_the_nearest_request_by_ratio() -> None:
    generator = np.random.default_rng(4)
    prompts, outputs = (generator.integers(1, 400, 30).tolist() for _ in range(2))
    logged_prompts, logged_outputs = (generator.integers(0, 900, 50).tolist() for _ in range(2))
    trace = _trace(prompts, outputs)
    log = _log(50, prompt_tokens=logged_prompts, output_tokens=logged_outputs)
    demand = Demand.recorded(trace, log, speed_up=2.0)
    assert demand.arrival_s.tolist() == [1.5 * i for i in range(50)]
    for place, request in enumerate(demand.requests):
        distances = [
            abs(math.log((1 + output) / (1 + logged_outputs[place])))
            + abs(math.log((1 + prompt) / (1 + logged_prompts[place])))
            for prompt, output in zip(prompts, outputs, strict=True)
        ]
        assert distances[request] == pytest.approx(min(distances), abs=1e-12)
    by_output = Demand.recorded(trace, _log(50, output_tokens=logged_outputs)).requests
    for place, request in enumerate(by_output):
        ratios = [abs(math.log((1 + output) / (1 + logged_outputs[place]))) for output in outputs]
        assert ratios[request] == pytest.approx(min(ratios), abs=1e-12)


def test_equally_near_requests_are_drawn_and_so_are_all_without_counts() -> None:
    trace = _trace([5, 5, 5, 5], [10, 20, 20, 40])
    drawn = Demand.recorded(trace, _log(400, output_tokens=[21] * 400), seed=3).requests
    assert np.bincount(drawn, minlength=4).tolist()[::3] == [0, 0]
    assert 150 < int((drawn == 1).sum()) < 250, "half of 400, and five standard deviations"
    blind = Demand.recorded(trace, _log(400), seed=3).requests
    assert all(60 < count < 140 for count in np.bincount(blind, minlength=4))
    assert blind.tolist() == Demand.recorded(trace, _log(400), seed=3).requests.tolist()
    assert blind.tolist() != Demand.recorded(trace, _log(400), seed=4).requests.tolist()


@pytest.mark.parametrize("speed_up", [0.0, -1.0, math.inf, math.nan])
def test_a_speed_up_is_a_positive_number(speed_up: float) -> None:
    with pytest.raises(ValueError, match="speed_up must be > 0 and finite"):
        Demand.recorded(_trace([1], [2]), _log(1), speed_up=speed_up)


def test_a_service_is_loaded_by_the_log(tmp_path: Path) -> None:
    trace = _trace([4, 4], [3, 9])
    log = read_arrivals(_file(tmp_path, "arrival_s,output_tokens\n100,2\n110,9\n115,3\n"))
    cost = LinearCost(target_fixed_s=1.0, target_kv_s=0.0, target_token_s=0.0)
    demand = Demand.recorded(trace, log)
    found = simulate(trace, Fixed(depth=0), demand, cost=cost, service=Service(max_batch_size=4))
    # a step takes 1 s; the second request's 9 tokens and the third's 3 come from 110 and 115 on
    assert demand.requests.tolist() == [0, 1, 0]
    assert found.arrivals_per_s == pytest.approx(2 / 15)
    assert found.modelled_tokens_per_s == pytest.approx(15 / 19)
    assert found.modelled_ttft_s[0] == pytest.approx(1.0)
