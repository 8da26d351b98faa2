"""StepTable: what a table says, between its sizes and beyond them, and what is no table."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.cost.step_table import StepTable
from dspark.cost.step_table_file import load_step_table, step_table

TABLE = {"tokens": [2, 4, 8], "target_s": [1.0, 2.0, 6.0]}


def target_s(cost: StepTable, tokens: list) -> list[float]:
    zero = torch.tensor(0)
    times = cost.step_time_s(
        decode_rows=zero, tokens=torch.tensor(tokens), context_tokens=zero, draft_tokens=zero
    )
    return times.target_s.tolist()


def draft_s(cost: StepTable, rows: list[int], depths: list[int]) -> list[list[float]]:
    times = cost.step_time_s(
        decode_rows=torch.tensor(rows)[:, None],
        tokens=torch.tensor(2),
        context_tokens=torch.tensor(0),
        draft_tokens=torch.tensor(depths),
    )
    return times.draft_s.tolist()


def test_a_staircase_pays_for_the_next_listed_size():
    # past the last size the line through (4, 2 s) and (8, 6 s) goes on: 1 s a token
    expected = {1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 6.0, 8: 6.0, 9: 7.0, 20: 18.0}
    assert target_s(StepTable(**TABLE), list(expected)) == list(expected.values())


def test_interpolation_draws_straight_lines():
    expected = {1: 1.0, 2: 1.0, 3: 1.5, 4: 2.0, 5: 3.0, 8: 6.0, 9: 7.0}
    assert target_s(StepTable(**TABLE, interpolate=True), list(expected)) == list(expected.values())


def test_sizes_between_whole_numbers_count_too():
    """A policy may ask for an expected number of tokens."""
    assert target_s(StepTable(**TABLE), [2.5, 8.5]) == [2.0, 6.5]
    assert target_s(StepTable(**TABLE, interpolate=True), [2.5]) == [1.25]


def test_steps_per_second_are_the_inverse():
    # the capacity curve of Appendix A of arXiv 2607.05147
    cost = StepTable(tokens=[1, 2, 3], steps_per_s=[1.0, 0.5, 0.45])
    assert target_s(cost, [1, 2, 3]) == [1.0, 2.0, 1 / 0.45]


def test_the_parts_are_kept_apart_and_broadcast():
    cost = StepTable(**TABLE, draft_rows=[1], draft_depths=[1, 4], draft_s=[[0.5, 2.0]], overhead_s=0.25)
    times = cost.step_time_s(
        decode_rows=torch.tensor([[1], [2]]),
        tokens=torch.tensor([[2], [8]]),
        context_tokens=torch.tensor(10**6),
        draft_tokens=torch.tensor([0, 1, 4]),
    )
    assert times.draft_s.tolist() == [[0.0, 0.5, 2.0]] * 2
    assert times.target_s.tolist() == [[1.0] * 3, [6.0] * 3]
    assert times.overhead_s.tolist() == [[0.25] * 3] * 2
    assert all(part.dtype == torch.float64 for part in (times.draft_s, times.target_s, times.overhead_s))


def test_draft_seconds_by_rows_and_depth():
    table = {"draft_rows": [1, 3], "draft_depths": [1, 2], "draft_s": [[1.0, 2.0], [3.0, 8.0]]}
    # depth 3 goes on by 1 s at 1 row and 5 s at 3 rows; row 4 by half of what 2 rows more cost
    assert draft_s(StepTable(**TABLE, **table), [1, 2, 3, 4], [0, 1, 2, 3]) == [
        [0.0, 1.0, 2.0, 3.0],
        [0.0, 3.0, 8.0, 13.0],
        [0.0, 3.0, 8.0, 13.0],
        [0.0, 4.0, 11.0, 18.0],
    ]
    assert draft_s(StepTable(**TABLE, **table, interpolate=True), [2], [1, 2]) == [[2.0, 5.0]]


def test_one_entry_stands_for_all_sizes():
    """A block drafter pays for its block whatever the depth, and a lookup hardly for rows."""
    cost = StepTable(**TABLE, draft_rows=[8], draft_depths=[7], draft_s=[[0.5]])
    assert draft_s(cost, [1, 8, 100], [0, 1, 7, 9]) == [[0.0, 0.5, 0.5, 0.5]] * 3


@settings(deadline=None, max_examples=50)
@given(data=st.data(), interpolate=st.booleans())
def test_a_lookup_is_what_a_search_by_hand_finds_and_never_falls(data, interpolate):
    sizes = sorted(data.draw(st.sets(st.integers(1, 60), min_size=2, max_size=8)))
    steps = data.draw(st.lists(st.integers(0, 9), min_size=len(sizes), max_size=len(sizes)))
    seconds = [float(1 + sum(steps[: i + 1])) for i in range(len(sizes))]
    found = target_s(StepTable(tokens=sizes, target_s=seconds, interpolate=interpolate), list(range(80)))
    assert found == sorted(found)
    for size, value in enumerate(found):
        if size <= sizes[0]:
            by_hand = seconds[0]
        else:
            above = next((i for i, listed in enumerate(sizes) if listed >= size), len(sizes) - 1)
            slope = (seconds[above] - seconds[above - 1]) / (sizes[above] - sizes[above - 1])
            by_hand = seconds[above] + slope * (size - sizes[above])
            if not interpolate and size < sizes[above]:
                by_hand = seconds[above]
        assert value == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_s": None}, "exactly one of target_s and steps_per_s, got none"),
        ({"steps_per_s": [3.0, 2.0, 1.0]}, "exactly one of target_s and steps_per_s, got both"),
        ({"tokens": [2], "target_s": [1.0]}, r"tokens needs 2 or more sizes, got \[2\]"),
        ({"tokens": [4, 2, 8]}, "tokens must be whole numbers that ascend"),
        ({"tokens": [2, 2, 8]}, "tokens must be whole numbers that ascend"),
        ({"tokens": [0, 2, 8]}, "tokens must be whole numbers that ascend from 1"),
        ({"tokens": [1.5, 2, 8]}, "tokens must be whole numbers"),
        ({"target_s": [1.0, 2.0]}, "target_s needs a time for each of 3 sizes, got 2"),
        ({"target_s": [0.0, 2.0, 3.0]}, "target_s must hold seconds > 0"),
        ({"target_s": [1.0, float("nan"), 3.0]}, "target_s must hold seconds > 0"),
        ({"target_s": [1.0, 3.0, 2.0]}, "target_s must not fall, got 3 s at 4 and 2 s at 8"),
        ({"target_s": None, "steps_per_s": [3.0, 0.0, 1.0]}, "steps_per_s must be > 0"),
        ({"target_s": None, "steps_per_s": [1.0, 2.0, 1.0]}, "1 / steps_per_s must not fall"),
        ({"overhead_s": -1.0}, "overhead_s must be >= 0 and finite, got -1.0"),
        ({"draft_rows": [1]}, "draft_rows, draft_depths and draft_s belong together"),
        ({"draft_rows": [], "draft_depths": [1], "draft_s": []}, "draft_rows needs 1 or more sizes"),
        ({"draft_rows": [1, 2], "draft_depths": [1], "draft_s": [[1.0]]}, "one list for each of the 2 draft"),
        ({"draft_rows": [1], "draft_depths": [1, 2], "draft_s": [[1.0]]}, "draft_s at 1 rows needs a time"),
        (
            {"draft_rows": [1], "draft_depths": [1, 2], "draft_s": [[2.0, 1.0]]},
            "draft_s at 1 rows must not fall",
        ),
        (
            {"draft_rows": [1, 2], "draft_depths": [3], "draft_s": [[2.0], [1.0]]},
            "draft_s at depth 3 must not fall",
        ),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=message) as refusal:
        StepTable(**{**TABLE, **settings})
    assert "\n" not in str(refusal.value)


class TestFile:
    """A table in a JSON file is the table of its lists."""

    def written(self, folder, content) -> object:
        path = folder / "table.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def test_the_file_and_the_lists_say_the_same(self, tmp_path):
        fields = {**TABLE, "interpolate": True, "overhead_s": 1}
        path = self.written(tmp_path, fields)
        assert load_step_table(path) == step_table(path=path) == step_table(**fields) == StepTable(**fields)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "must be a JSON object, got"),
            ([1, 2], "must be an object with tokens and any of .*, got list"),
            ({"target_s": [1.0]}, "must be an object with tokens .*, got target_s"),
            ({**TABLE, "sizes": [1]}, "got tokens, target_s, sizes"),
            ({**TABLE, "tokens": 5}, "tokens must be a list of numbers, got 5"),
            ({**TABLE, "target_s": [1, "2", 6]}, "target_s must be a list of numbers"),
            ({**TABLE, "draft_s": [1.0]}, "draft_s must be lists of numbers"),
            ({**TABLE, "overhead_s": True}, "overhead_s must be a number, got True"),
            ({**TABLE, "interpolate": 1}, "interpolate must be true or false, got 1"),
            ({**TABLE, "target_s": [3, 2, 1]}, "table.json: target_s must not fall"),
        ],
    )
    def test_a_bad_file_is_refused_by_name(self, content, message, tmp_path):
        with pytest.raises(ValueError, match=message) as refusal:
            load_step_table(self.written(tmp_path, content))
        assert "table.json" in str(refusal.value)
        assert "\n" not in str(refusal.value)

    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match=r"cannot read the step table .*none\.json: No such file"):
            load_step_table(tmp_path / "none.json")

    def test_path_and_lists_exclude_each_other(self, tmp_path):
        with pytest.raises(ValueError, match="needs tokens with target_s or steps_per_s, or the path"):
            step_table()
        path = self.written(tmp_path, TABLE)
        with pytest.raises(ValueError, match="from its path or from its lists, got path and tokens, interp"):
            step_table(path=path, tokens=[1, 2], interpolate=True)
