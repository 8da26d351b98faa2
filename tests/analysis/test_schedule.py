"""Schedules keep their rules, join their ranges, and survive a file."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dspark.analysis.schedule import Schedule, load_schedule
from dspark.policies.batch_table import BatchTable
from tests.analysis.export.schedules import depth_of, random_schedules, sizes

WRITTEN: dict[str, Any] = {
    "schema": 1,
    "ranges": [[1, 4, 5], [5, 5, 0]],
    "target": "t",
    "drafter": None,
    "cost": "H200",
    "command": "dspark tune",
}


def test_a_file_gives_the_schedule_that_was_written(tmp_path: Path) -> None:
    schedule = Schedule(depths=((1, 4, 5), (5, 5, 0)), target="t", cost="H200", command="dspark tune")
    assert schedule.to_json() == WRITTEN
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps(schedule.to_json()))
    assert load_schedule(path) == schedule
    assert schedule.max_depth == 5


@pytest.mark.parametrize(
    ("depths", "message"),
    [
        ((), "needs a range for batch size 1, got no ranges"),
        (
            ((2, 4, 3),),
            "the first range must start at 1, because every batch size needs a depth, got [2, 4, 3]",
        ),
        (((0, 4, 3),), "the first range must start at 1"),
        (((1, 4, -1),), "a depth is a number of drafted tokens, >= 0, got -1 in [1, 4, -1]"),
        (((1, 0, 2),), "a range must not end before it starts, got [1, 0, 2]"),
        (((1, 4, 3), (4, 8, 2)), "must ascend and not overlap, got [4, 8, 2] after [1, 4, 3]: start at 5"),
        (((1, 4, 3), (1, 4, 3)), "must ascend and not overlap"),
        (((1, 4, 3), (7, 8, 2)), "must leave no gap, because every batch size needs a depth, got [7, 8, 2]"),
        (((1, 4),), "three whole numbers [lowest, highest, depth], got [1, 4]"),
        (((1, 4, 2.0),), "three whole numbers"),
        (((1, 4, True),), "three whole numbers"),
    ],
)
def test_ranges_that_break_a_rule_are_refused(depths: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Schedule(depths=depths)
    with pytest.raises(ValueError, match=re.escape(message)):
        Schedule.from_json({**WRITTEN, "ranges": [list(entry) for entry in depths]})


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ([1], "a schedule is an object of schema 1, got [1]"),
        ({**WRITTEN, "schema": 2}, "an object of schema 1, got 2"),
        ({key: WRITTEN[key] for key in ("schema", "ranges")}, "has the fields schema, ranges, target"),
        ({**WRITTEN, "note": "x"}, "has the fields schema, ranges, target"),
        ({**WRITTEN, "cost": 3}, "cost must be a text or null, got 3"),
        ({**WRITTEN, "ranges": {"1": 4}}, "ranges must be a list of [lowest, highest, depth]"),
        ({**WRITTEN, "ranges": [4]}, "ranges must be a list of [lowest, highest, depth]"),
    ],
)
def test_other_objects_are_refused(item: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Schedule.from_json(item)


def test_a_file_that_is_none_is_told_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    with pytest.raises(ValueError, match=f"cannot read the schedule {path}: No such file"):
        load_schedule(path)
    path.write_text("{")
    with pytest.raises(ValueError, match=f"the schedule {path} is not JSON"):
        load_schedule(path)
    path.write_text("{}")
    with pytest.raises(
        ValueError, match=f"the schedule {path}: a schedule is an object of schema 1, got None"
    ):
        load_schedule(path)


def test_merging_leaves_every_depth_and_no_equal_neighbours() -> None:
    schedules = random_schedules()
    assert any(len(schedule.merged().depths) < len(schedule.depths) for schedule in schedules)
    for schedule in schedules:
        merged = schedule.merged()
        assert [depth_of(merged, size) for size in sizes(schedule)] == [
            depth_of(schedule, size) for size in sizes(schedule)
        ]
        depths = [depth for _, _, depth in merged.depths]
        assert all(a != b for a, b in pairwise(depths))


def test_the_policy_of_the_same_ranges_drafts_as_the_schedule_says() -> None:
    for schedule in random_schedules():
        policy = BatchTable(ranges=[list(entry) for entry in schedule.depths])
        assert all(policy.depth_at(size) == depth_of(schedule, size) for size in sizes(schedule))
