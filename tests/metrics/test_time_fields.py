"""Times are named by their clock where they are written, and the two kinds never meet."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dspark.metrics.summary import measured, over_repeats
from dspark.metrics.tally import Tally
from dspark.metrics.time_fields import named_by_clock, one_clock, time_field
from dspark.metrics.trace import completion_from_json, completion_to_json, step_from_json, step_to_json
from dspark.metrics.tracker import step_numbers
from tests.metrics.conftest import make_completion, make_row, make_step
from tests.metrics.test_summary import SIZES

STEP = replace(make_step(0, [make_row("a", drafted=2, accepted=1)], wall_s=0.5), is_modelled=True)


def test_only_times_get_another_name() -> None:
    item = {"policy": "fixed 0", "wall_s": 1.0, "drafted_tokens": 3}
    assert named_by_clock(item, is_modelled=False) == item
    assert named_by_clock(item, is_modelled=True) == {
        "policy": "fixed 0",
        "modelled_wall_s": 1.0,
        "drafted_tokens": 3,
    }
    assert time_field("bytes_per_output_token", is_modelled=True) == "bytes_per_output_token"


def test_a_modelled_row_has_the_numbers_of_the_same_wall_row_under_other_names() -> None:
    tally, done = Tally(), [make_completion("a", 2)]
    tally.add(STEP)
    rows = [measured(tally, done, **SIZES, is_modelled=is_modelled) for is_modelled in (False, True)]
    times = {key for key in rows[0] if key not in rows[1]}
    assert times == {
        *("wall_s", "tokens_per_s", "decode_tokens_per_s", "goodput_tokens_per_s"),
        *("ttft_mean_s", "tpot_mean_s", "time_split_s"),
    }
    assert {key.removeprefix("modelled_"): value for key, value in rows[1].items()} == rows[0]


def test_steps_and_completions_survive_the_way_through_json() -> None:
    item = json.loads(json.dumps(step_to_json(STEP)))
    assert {"modelled_wall_s", "modelled_time_split_s"} <= set(item)
    assert not {"wall_s", "time_split_s"} & set(item)
    assert step_from_json(item) == STEP
    done = make_completion("a", 3)
    item = json.loads(json.dumps(completion_to_json(done, is_modelled=True)))
    assert {"modelled_ttft_s", "modelled_latency_s"} <= set(item)
    assert not {"ttft_s", "latency_s"} & set(item)
    assert completion_from_json(item, done.prompt_ids) == done


def test_trackers_get_the_modelled_names() -> None:
    numbers = step_numbers(STEP)
    assert (numbers["modelled_wall_s"], numbers["modelled_tokens_per_s"]) == (0.5, 2 / 0.5)
    assert not {"wall_s", "tokens_per_s"} & set(numbers)


def _row(wall_s: float, speed: float) -> dict[str, Any]:
    row = {"wall_s": wall_s, "decode_tokens_per_s": speed, "tokens_per_s": speed / 2, "tokens_sha256": "x"}
    return named_by_clock(row, is_modelled=True)


def test_repeats_and_ratios_of_modelled_rows_are_modelled() -> None:
    row = over_repeats([_row(1.0, 30.0), _row(3.0, 10.0)], [_row(1.5, 20.0), _row(1.5, 20.0)])
    assert (row["modelled_wall_s"], row["modelled_ratio_to_plain"]) == (1.0, (30 / 20 + 10 / 20) / 2)
    assert row["modelled_ratio_to_plain_end_to_end"] == row["modelled_ratio_to_plain"]
    assert [each["modelled_wall_s"] for each in row["repeats"]] == [1.0, 3.0]
    assert not {"wall_s", "ratio_to_plain", "ratio_to_plain_end_to_end"} & set(row)


def test_rows_of_both_clocks_are_refused() -> None:
    wall = {"wall_s": 1.0, "decode_tokens_per_s": 1.0, "tokens_per_s": 1.0, "tokens_sha256": "x"}
    assert not one_clock([])
    assert not one_clock([wall, wall])
    assert one_clock([_row(1.0, 1.0)] * 2)
    with pytest.raises(ValueError, match="rows of one engine.clock"):
        one_clock([wall, _row(1.0, 1.0)])
    with pytest.raises(ValueError, match="rows of one engine.clock"):
        over_repeats([_row(1.0, 1.0)], [wall])


@pytest.mark.parametrize("first", [True, False])
def test_a_tally_does_not_add_wall_and_modelled_seconds(first: bool) -> None:
    tally = Tally()
    tally.add(replace(STEP, is_modelled=first))
    tally.add(replace(STEP, is_modelled=first))
    with pytest.raises(ValueError, match="do not add up"):
        tally.add(replace(STEP, is_modelled=not first))
    assert tally.totals.num_steps == 2
