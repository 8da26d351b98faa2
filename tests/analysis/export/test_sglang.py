"""SGLang's three files: its rules hold, and its look-ups give back what went in."""

from __future__ import annotations

import json
from bisect import bisect_right

import pytest

from dspark.analysis.export.full_verify import full_verify_seconds
from dspark.analysis.export.sglang import (
    adaptive_config,
    adaptive_notes,
    sps_table,
    sts_calibration,
    sts_notes,
)
from dspark.analysis.schedule import Schedule
from tests.analysis.export.schedules import depth_of, random_schedules, sizes
from tests.cost.profiles import by_law


@pytest.mark.parametrize("schedule", random_schedules(), ids=str)
def test_adaptive_steps_are_the_schedule(schedule: Schedule) -> None:
    config = json.loads(json.dumps(adaptive_config(schedule)))
    keys = [int(key) for key in config]
    assert keys == sorted(keys)
    assert keys[0] == 1

    def looked_up(batch_size: int) -> list[int]:  # the largest key that is not larger
        return config[str(keys[bisect_right(keys, batch_size) - 1])]["candidate_steps"]

    assert all(looked_up(size) == [depth_of(schedule, size)] for size in sizes(schedule))
    _, last, depth = schedule.depths[-1]
    assert looked_up(last + 100) == [depth]
    assert f"past batch size {last} SGLang goes on with depth {depth}" in adaptive_notes(schedule)


def test_a_schedule_that_never_drafts_is_refused() -> None:
    with pytest.raises(ValueError, match="SGLang needs a depth >= 1 to prepare for"):
        adaptive_config(Schedule(depths=((1, 8, 0),)))


class TestSps:
    def test_rates_are_those_of_the_profile(self) -> None:
        # a step takes a second a row, a thousandth a cached token, a tenth a token, 2 to draft to
        # depth 1 and 4 to depth 3, and half a second beside
        def law(rows: int, context: int, tokens: int) -> float:
            return rows + rows * context / 1000 + tokens / 10

        profile = by_law(law, draft=lambda _, depth: 1 + depth)
        tokens, seconds = full_verify_seconds(profile, depth=3, context=10)
        assert tokens == [1, 2, 4, 8, 16, 32]
        # drafts of 3 are verified in passes of 4 tokens a row, so these are 1, 1, 1, 2, 4 and 8 rows
        rows = [1, 1, 1, 2, 4, 8]
        expected = [law(r, 10, n) + 4 + 0.5 for r, n in zip(rows, tokens, strict=True)]
        # beyond the rows measured (4) up to the next (16), the profile is a straight line, as the law
        assert seconds == pytest.approx(expected)
        table = json.loads(json.dumps(sps_table(tokens, seconds)))
        assert table["sample_batch_tokens"] == tokens
        assert table["sample_steps_per_sec"] == pytest.approx([1 / second for second in expected])
        assert table["max_batch_tokens"] >= table["sample_batch_tokens"][-1]

    def test_without_a_context_the_middle_one_counts(self) -> None:
        profile = by_law(lambda rows, context, tokens: rows + rows * context + tokens)
        middle = full_verify_seconds(profile, depth=3)
        assert middle == full_verify_seconds(profile, depth=3, context=50)
        assert middle != full_verify_seconds(profile, depth=3, context=10)

    @pytest.mark.parametrize(
        ("tokens", "seconds", "message"),
        [
            ([8], [0.1], "a table of one size for none and verifies everything, got 1"),
            ([8, 8], [0.1, 0.1], "ascend from 1 or more"),
            ([0, 8], [0.1, 0.1], "ascend from 1 or more"),
            ([4, 8], [0.1], "seconds > 0 for each of 2 numbers of tokens"),
            ([4, 8], [0.1, 0.0], "seconds > 0 for each of 2 numbers of tokens"),
        ],
    )
    def test_what_is_no_table_is_refused(self, tokens: list[int], seconds: list[float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            sps_table(tokens, seconds)


class TestSts:
    def test_temperatures_go_through(self) -> None:
        temperatures = (0.5, 1.0, 2.0)
        written = sts_calibration(temperatures, estimator="confidence", dataset="builtin")
        assert written == {"temperatures": [0.5, 1.0, 2.0], "dataset": "builtin"}
        assert "--speculative-dspark-block-size 3" in sts_notes(temperatures)[0]

    @pytest.mark.parametrize("temperatures", [(), (1.0, 0.0), (1.0, -1.0), (float("inf"),), (float("nan"),)])
    def test_what_is_no_temperature_is_refused(self, temperatures: tuple[float, ...]) -> None:
        with pytest.raises(ValueError, match="SGLang needs temperatures > 0, one a position"):
            sts_calibration(temperatures, estimator="confidence")

    def test_those_of_another_estimator_are_refused(self) -> None:
        with pytest.raises(ValueError, match="got those of the estimator 'top1': run `dspark calibrate"):
            sts_calibration((1.0,), estimator="top1")
