"""vLLM accepts what is exported, and reads each batch size's depth out of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dspark.analysis.export.vllm import WITHOUT_MODEL, Method, notes, speculative_config
from dspark.analysis.schedule import Schedule
from tests.analysis.export.schedules import LAST, depth_of, random_schedules, sizes


def _accepted(config: dict[str, Any], num_sizes: int) -> list[int]:
    """K of the batch sizes 1 ... ``num_sizes``, by the rules that vLLM documents; asserts that they hold.

    Written from the rules' description, since vLLM is not installed with the development tools:
    https://github.com/vllm-project/vllm/pull/32374.
    """
    table, largest = config["num_speculative_tokens_per_batch_size"], config["num_speculative_tokens"]
    assert largest > 0
    assert table
    assert table[0][0] == 1
    last_end, found = 0, []
    for entry in table:
        assert len(entry) == 3
        assert all(type(number) is int for number in entry)
        start, end, depth = entry
        assert last_end < start <= end
        assert 0 <= depth <= largest
        found += [found[-1] if found else 0] * (start - 1 - last_end)  # a gap has the K before it
        found += [depth] * (end + 1 - start)
        last_end = end
    return (found + found[-1:] * num_sizes)[:num_sizes]


def _exported(schedule: Schedule) -> dict[str, Any]:
    return json.loads(json.dumps(speculative_config(schedule, method="eagle3", model="org/drafter")))


@pytest.mark.parametrize("schedule", random_schedules(), ids=str)
def test_the_documented_rules_hold_and_give_the_depths_back(schedule: Schedule) -> None:
    config = _exported(schedule)
    accepted = _accepted(config, 2 * LAST)
    assert accepted[: len(sizes(schedule))] == [depth_of(schedule, size) for size in sizes(schedule)]
    # as the note says
    _, last, depth = schedule.depths[-1]
    assert set(accepted[last:]) == {depth}
    assert f"past batch size {last} vLLM goes on with depth {depth}" in notes(schedule, "eagle3")


def test_vllm_itself_accepts_it() -> None:
    dynamic = pytest.importorskip("vllm.v1.spec_decode.dynamic.utils")
    for schedule in random_schedules():
        config = _exported(schedule)
        lookup = dynamic.build_dynamic_sd_schedule_lookup(
            config["num_speculative_tokens_per_batch_size"], LAST, config["num_speculative_tokens"]
        )
        assert [lookup[size] for size in sizes(schedule)] == [
            depth_of(schedule, size) for size in sizes(schedule)
        ]


def test_the_documented_example() -> None:
    schedule = Schedule(depths=((1, 32, 3), (33, 64, 3), (65, 128, 1), (129, 512, 0)))
    assert speculative_config(schedule, method="eagle", model="org/drafter") == {
        "method": "eagle",
        "model": "org/drafter",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 64, 3], [65, 128, 1], [129, 512, 0]],
    }
    assert len(notes(schedule, "eagle")) == 1
    assert "try dspark first" in notes(schedule, "dspark")[1]


@pytest.mark.parametrize("method", WITHOUT_MODEL)
def test_methods_without_a_model(method: Method) -> None:
    assert "model" not in speculative_config(Schedule(depths=((1, 4, 2),)), method=method)


@pytest.mark.parametrize(
    ("depth", "method", "model", "message"),
    [
        (0, "ngram", None, "vLLM needs num_speculative_tokens >= 1, and every depth of the schedule is 0"),
        (2, "eagle3", None, "vLLM's method eagle3 needs a drafter, got none: set export.model=ID"),
        (2, "ngram", "org/x", "vLLM's method ngram has no model, got 'org/x'"),
    ],
)
def test_what_vllm_cannot_run_is_refused(depth: int, method: Method, model: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        speculative_config(Schedule(depths=((1, 4, depth),)), method=method, model=model)
