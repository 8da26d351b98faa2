"""Random schedules, and what they say about each batch size."""

from __future__ import annotations

import random

from dspark.analysis.schedule import Schedule

LAST = 60
"""No random schedule ends past this batch size."""


def random_schedules(*, falling: bool = False, num: int = 40) -> list[Schedule]:
    """Schedules that draft somewhere; neighbours may have one depth, and depths 0 and jumps occur."""
    draw = random.Random(0)
    found: list[Schedule] = []
    while len(found) < num:
        ends = sorted(draw.sample(range(1, LAST + 1), draw.randint(1, 6)))
        depths = [draw.randint(0, 7) for _ in ends]
        if falling:
            depths.sort(reverse=True)
        starts = [1, *(end + 1 for end in ends)]
        schedule = Schedule(depths=tuple(zip(starts, ends, depths, strict=False)))
        if schedule.max_depth > 0:
            found.append(schedule)
    return found


def depth_of(schedule: Schedule, batch_size: int) -> int:
    """The depth of the range that the batch size is in."""
    (depth,) = (depth for low, high, depth in schedule.depths if low <= batch_size <= high)
    return depth


def sizes(schedule: Schedule) -> range:
    """The batch sizes that the schedule speaks of."""
    return range(1, schedule.depths[-1][1] + 1)
