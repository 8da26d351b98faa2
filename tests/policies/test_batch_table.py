"""Batch tables: three syntaxes, one lookup, hysteresis."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.policies import BatchTable
from dspark.types import Verdict

RANGES = [[1, 4, 4], [5, 16, 2], [17, 512, 0]]


@pytest.fixture(scope="module")
def depths(step_context):
    """Depth of every step, the batch sizes of which are given."""

    def run(table: BatchTable, sizes, num_slots: int = 1024) -> list[int]:
        state, found = table.init(num_slots), []
        for step, size in enumerate(sizes):
            ctx = step_context(size, num_slots=num_slots, step=step)
            plan = table.plan(ctx, state)
            found.append(int(plan[0]) if size else None)
            verdict = Verdict(verify_lengths=plan, accepted=plan, next_token=plan)
            state = table.observe(ctx, verdict, state)
        return found

    return run


def lookups(table: BatchTable, sizes) -> list[int]:
    return [table.depth_at(size) for size in sizes]


def test_ranges_are_inclusive_at_both_ends():
    assert lookups(BatchTable(ranges=RANGES), [1, 4, 5, 16, 17, 512]) == [4, 4, 2, 2, 0, 0]


def test_a_gap_inherits_and_the_last_range_goes_on():
    table = BatchTable(ranges=[[1, 2, 5], [6, 8, 3]])
    assert lookups(table, [2, 3, 5, 6, 8, 9, 10_000]) == [5, 5, 5, 3, 3, 3, 3]


def test_schedule_keys_are_upper_bounds_and_zero_follows():
    table = BatchTable(draft_len_schedule={4: 4, 8: 2, 32: 1})
    assert lookups(table, [1, 4, 5, 8, 9, 32, 33, 1000]) == [4, 4, 2, 2, 1, 1, 0, 0]


def test_schedule_order_does_not_matter():
    assert (
        BatchTable(draft_len_schedule={32: 1, 4: 4}).segments()
        == BatchTable(draft_len_schedule={4: 4, 32: 1}).segments()
    )


def test_switch_is_off_from_its_size_on_and_comes_back(depths):
    table = BatchTable(disable_by_batch_size=8, depth=3)
    assert depths(table, [7, 8, 9, 7]) == [3, 0, 0, 3]


def test_the_three_syntaxes_say_the_same():
    as_ranges = BatchTable(ranges=[[1, 7, 3], [8, 99, 0]])
    as_schedule = BatchTable(draft_len_schedule={7: 3})
    as_switch = BatchTable(disable_by_batch_size=8, depth=3)
    assert as_ranges.segments() == as_schedule.segments() == as_switch.segments()
    assert as_ranges.max_depth == as_schedule.max_depth == as_switch.max_depth == 3


def test_ranges_of_one_depth_are_one_range():
    assert len(BatchTable(ranges=[[1, 4, 2], [5, 9, 2], [10, 20, 1]]).segments()) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "exactly one of ranges, draft_len_schedule, disable_by_batch_size, got none"),
        ({"ranges": RANGES, "draft_len_schedule": {4: 4}}, "got ranges and draft_len_schedule"),
        ({"ranges": []}, "ranges must not be empty"),
        ({"ranges": [[2, 4, 3]]}, r"must start at batch size 1, got \[2, 4, 3\] first: add \[1, 1, depth\]"),
        ({"ranges": [[1, 4]]}, r"whole numbers \[low, high, depth\], got \[1, 4\]"),
        ({"ranges": [[1, 4, 1.5]]}, r"whole numbers \[low, high, depth\]"),
        ({"ranges": [[0, 4, 1]]}, r"\[0, 4, 1\] must have 1 <= low <= high"),
        ({"ranges": [[1, 4, 1], [9, 8, 1]]}, r"\[9, 8, 1\] must have 1 <= low <= high"),
        ({"ranges": [[1, 4, 1], [4, 8, 1]]}, "must ascend and not overlap"),
        ({"ranges": [[1, 9, 1], [2, 3, 1]]}, "must ascend and not overlap"),
        ({"ranges": [[1, 4, -1]]}, r"the depth of range \[1, 4, -1\] must be >= 0, got -1"),
        ({"ranges": RANGES, "depth": 3}, r"\[1, 4, 4\] is deeper than depth=3"),
        ({"draft_len_schedule": {}}, "draft_len_schedule must not be empty"),
        ({"draft_len_schedule": {0: 4}}, "batch sizes >= 1, got 0"),
        ({"draft_len_schedule": {4: -1}}, r"draft_len_schedule\[4\] must be >= 0, got -1"),
        ({"draft_len_schedule": {4: 4, 8: 2}, "depth": 5}, r"draft_len_schedule\[4\]=4 contradicts depth=5"),
        ({"draft_len_schedule": {4: 4, 8: 6}, "depth": 4}, r"draft_len_schedule\[8\]=6 contradicts depth=4"),
        ({"disable_by_batch_size": 8}, "disable_by_batch_size needs depth"),
        ({"disable_by_batch_size": 1, "depth": 4}, "disable_by_batch_size must be >= 2, got 1"),
        ({"disable_by_batch_size": 8, "depth": -1}, "depth must be >= 0, got -1"),
        ({"ranges": RANGES, "hysteresis": -1}, "hysteresis must be >= 0 rows, got -1"),
    ],
)
def test_bad_tables_are_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as refusal:
        BatchTable(**settings)
    assert "\n" not in str(refusal.value)


def test_depth_may_repeat_the_largest(depths):
    assert BatchTable(ranges=RANGES, depth=4).max_depth == 4
    assert BatchTable(draft_len_schedule={4: 4, 8: 2}, depth=4).max_depth == 4


def test_known_failure_25_only_decode_rows_count(step_context):
    """Eight requests admitted, four of them still prefilling: the table sees four."""
    table = BatchTable(ranges=[[1, 4, 2], [5, 512, 0]])
    assert table.plan(step_context(4, num_slots=8), table.init(8)).tolist() == [2] * 4


def test_known_failure_25_a_batch_at_an_edge_does_not_flip_every_step(depths):
    sizes = [4, 5] * 20
    plain = depths(BatchTable(ranges=RANGES), sizes)
    assert plain == [4, 2] * 20
    steady = depths(BatchTable(ranges=RANGES, hysteresis=1), sizes)
    assert steady == [4] * 40


def test_hysteresis_moves_on_beyond_it_and_not_before(depths):
    table = BatchTable(ranges=RANGES, hysteresis=2)
    #     kept up to 4 + 2; left at 7; kept down to 5 - 2; left at 2
    assert depths(table, [4, 6, 7, 3, 2, 6, 7]) == [4, 4, 2, 2, 4, 4, 2]


def test_hysteresis_jumps_over_ranges_to_the_one_looked_up(depths):
    assert depths(BatchTable(ranges=RANGES, hysteresis=3), [2, 400, 15, 13, 1]) == [4, 0, 0, 2, 4]


def test_an_empty_step_decides_nothing(depths):
    table = BatchTable(ranges=RANGES, hysteresis=50)
    assert depths(table, [0, 0, 20, 0, 3]) == [None, None, 0, None, 0]


@settings(deadline=None)
@given(data=st.data(), edge=st.integers(1, 60), hysteresis=st.integers(1, 9))
def test_a_swing_of_up_to_twice_the_hysteresis_crosses_an_edge_once(depths, data, edge, hysteresis):
    table = BatchTable(ranges=[[1, edge, 3], [edge + 1, 512, 1]], hysteresis=hysteresis)
    low = data.draw(st.integers(1, edge + 5))
    sizes = data.draw(st.lists(st.integers(low, low + 2 * hysteresis), min_size=2, max_size=30))
    found = depths(table, sizes)
    assert sum(a != b for a, b in itertools.pairwise(found)) <= 1


@settings(deadline=None)
@given(
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
)
def test_without_hysteresis_every_step_is_a_lookup(depths, cuts, sizes):
    ranges, low = [], 1
    for depth, width in enumerate(cuts):
        ranges.append([low, low + width - 1, depth % 3])
        low += width
    table = BatchTable(ranges=ranges)
    by_hand = [next((r[2] for r in ranges if r[0] <= size <= r[1]), ranges[-1][2]) for size in sizes]
    assert depths(table, sizes) == by_hand
