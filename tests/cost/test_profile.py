"""Profiles: kept whole on disk, read with every value checked, and looked up by hand-worked rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.cost.linear import LinearCost
from dspark.cost.profile import DraftPoint, PassPoint, Profile
from dspark.cost.profile_cost import ProfileCost
from dspark.cost.profile_file import load_profile, profile_cost, save_profile
from tests.cost.profiles import by_law, profile_of, seconds

SCHEMA_1 = Path(__file__).with_name("profile_schema_1.json")


# ---- the file ----------------------------------------------------------------------------------


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    profile = by_law(lambda r, c, n: 1 + n + 0.1 * r * c, draft=lambda r, d: d + r)
    path = tmp_path / "new" / "profile.json"
    save_profile(profile, path)
    assert load_profile(path) == profile
    written = json.loads(path.read_text())
    assert written["schema"] == 1
    assert written["fit"]["target"]["num_points"] == len(profile.passes)
    assert [item.name for item in path.parent.iterdir()] == ["profile.json"], "something partial is left"


def test_a_file_of_schema_1_is_read() -> None:
    profile = load_profile(SCHEMA_1)
    assert profile.machine.torch == "2.13.0"
    assert profile.passes[0] == PassPoint(rows=1, tokens=1, context=64, seconds=(0.25, 0.125, 0.5))
    assert profile.passes[0].median_s == 0.25
    assert profile.passes[2].seconds == (1.0,)
    assert profile.curve(1, 64) == ([1, 8], [0.25, 0.5])
    assert profile.curves() == [(1, 64), (2, 64)]


def test_the_kinds_of_cost_model() -> None:
    assert isinstance(profile_cost(SCHEMA_1), ProfileCost)
    assert isinstance(profile_cost(SCHEMA_1, kind="linear"), LinearCost)


def _changed(**changes: Any) -> str:
    return json.dumps({**json.loads(SCHEMA_1.read_text()), **changes})


PASS = {"rows": 1, "tokens": 1, "context": 64, "seconds": [0.25]}
OTHER = {**PASS, "tokens": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is no profile, it has no schema: run `dspark profile`"),
        ('{"tokens": [1, 2]}', "is no profile, it has no schema"),
        (_changed(schema=0), "has schema 0, and this version reads 1: run `dspark profile`"),
        (_changed(schema=2), "has schema 2, and this version reads 1"),
        (_changed(more=1), "it must have machine, model, drafter, passes, drafts, got machine,"),
        ('{"schema": 1}', "it must have machine, model, drafter, passes, drafts, got nothing"),
        (_changed(machine=3), "machine must have processor, num_cpus, "),
        (_changed(passes={}), "passes must be a list, got {}"),
        (_changed(passes=[{**PASS, "rows": 1.5}]), "passes[0].rows must be a whole number, got 1.5"),
        (_changed(passes=[{**PASS, "rows": True}]), "passes[0].rows must be a whole number, got True"),
        (_changed(passes=[{**PASS, "seconds": ["1"]}]), "passes[0].seconds[0] must be a number, got '1'"),
        (_changed(passes=[{**PASS, "seconds": []}]), "passes[0]: seconds needs one or more finite numbers"),
        (
            _changed(passes=[{**PASS, "seconds": [0]}]),
            "passes[0]: seconds needs one or more finite numbers > 0",
        ),
        (_changed(passes=[{**PASS, "seconds": [float("nan")]}]), "seconds needs one or more finite numbers"),
        (_changed(passes=[{**PASS, "rows": 2}]), "tokens >= rows and context >= 0, got rows=2, tokens=1"),
        (
            _changed(passes=[PASS, OTHER, PASS]),
            "a pass of rows, tokens, context is there once, got 1, 1, 64 twice",
        ),
        (_changed(passes=[PASS]), "a profile needs passes of 2 or more numbers of tokens, got 1 passes"),
        (
            _changed(drafts=[{"rows": 1, "depth": 1, "draft_s": [1.0], "overhead_s": []}]),
            "drafts[0]: draft_s and overhead_s are of the same steps, got 1 and 0 repeats",
        ),
        (
            _changed(drafts=[{"rows": 1, "depth": -1, "draft_s": [1.0], "overhead_s": [0]}]),
            "drafts[0]: a step has rows >= 1 and depth >= 0, got 1 and -1",
        ),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_profile(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_captured_sizes_must_ascend() -> None:
    with pytest.raises(ValueError, match="captured_tokens must ascend from 1 or more, got"):
        profile_of([(1, 0, 1, 1.0), (1, 0, 2, 1.0)], captured=(8, 4))


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no profile .*none\.json: run `dspark profile`"):
        profile_cost(tmp_path / "none.json")
    with pytest.raises(ValueError, match=r"cannot read the profile .*: Is a directory"):
        profile_cost(tmp_path)


# ---- between and beyond the sizes --------------------------------------------------------------


ONE_ROW = [(1, 0, 2, 1.0), (1, 0, 4, 2.0), (1, 0, 8, 6.0)]


def test_tokens_lie_on_straight_lines() -> None:
    # below 2 tokens the first holds; 6 is half way from 2 s to 6 s; past 8 the last line goes on, 1 s a token
    expected = {1: 1.0, 2: 1.0, 3: 1.5, 4: 2.0, 6: 4.0, 8: 6.0, 10: 8.0}
    found = seconds(ProfileCost.of(profile_of(ONE_ROW)), rows=[1] * 7, tokens=list(expected), cached=[0] * 7)
    assert found == list(expected.values())


def test_captured_graphs_are_a_staircase_up_to_the_largest() -> None:
    # a graph for 3 tokens was captured, though none of 3 was measured: half way between 2 and 4 tokens
    cost = ProfileCost.of(profile_of(ONE_ROW, captured=(3, 6)))
    expected = {1: 1.5, 3: 1.5, 3.5: 4.0, 4: 4.0, 5: 4.0, 6: 4.0, 7: 5.0, 8: 6.0, 9: 7.0}
    found = seconds(cost, rows=[1] * 9, tokens=list(expected), cached=[0] * 9)
    assert found == list(expected.values())


def test_context_is_a_mean_a_row_on_straight_lines() -> None:
    passes = [(2, c, n, s) for c, s in ((10, 1.0), (20, 3.0), (40, 4.0)) for n in (2, 4)]
    # of 2 rows: 5 a row: the first holds; 15: half way; 30: half way from 3 s to 4 s; 60: 1/20 s a token on
    found = seconds(
        ProfileCost.of(profile_of(passes)), rows=[2] * 6, tokens=[2] * 6, cached=[10, 20, 30, 40, 60, 120]
    )
    assert found == pytest.approx([1.0, 1.0, 2.0, 3.0, 3.5, 5.0])


def test_rows_lie_on_straight_lines_at_the_same_tokens() -> None:
    # 1 row: 1 s at 1 token, 2 s at 4, 4 s at 8; 4 rows: 5 s at 4, 6 s at 8
    passes = [(1, 0, 1, 1.0), (1, 0, 4, 2.0), (1, 0, 8, 4.0), (4, 0, 4, 5.0), (4, 0, 8, 6.0)]
    cost = ProfileCost.of(profile_of(passes))
    # 2 rows of 4 tokens are a third of the way from 2 s to 5 s, of 8 a third from 4 s to 6 s; 7 rows
    # of 8 go on by 2/3 s a row, so 8 s. 2 rows of 2 tokens: 1 row takes 1 + 1/3; 4 rows could not have
    # 2, and continue the curve of 1 row, which is 2/3 s lower at 2 tokens than at 4: 5 - 2/3.
    low, high = 1 + 1 / 3, 5 - 2 / 3
    found = seconds(cost, rows=[2, 2, 7, 2], tokens=[4, 8, 8, 2], cached=[0] * 4)
    assert found == pytest.approx([3.0, 4 + 2 / 3, 8.0, low + (high - low) / 3])


def test_noise_is_made_monotone() -> None:
    # along tokens least squares: (3, 1) fall, so both become their mean 2, which 2 does not fall below
    cost = ProfileCost.of(profile_of([(1, 0, 1, 3.0), (1, 0, 2, 1.0), (1, 0, 4, 2.0), (1, 0, 8, 5.0)]))
    assert seconds(cost, rows=[1] * 4, tokens=[1, 2, 4, 8], cached=[0] * 4) == [2.0, 2.0, 2.0, 5.0]
    # along contexts and rows a running maximum
    passes = [(r, c, n, s) for r, c, s in ((1, 10, 2.0), (1, 20, 1.0), (2, 10, 1.5)) for n in (2, 4)]
    cost = ProfileCost.of(profile_of(passes))
    assert seconds(cost, rows=[1, 1, 2], tokens=[2] * 3, cached=[10, 20, 20]) == [2.0, 2.0, 2.0]


def test_a_linear_law_is_met_at_all_sizes_measured_or_not() -> None:
    # bilinear in rows and context, as cached tokens are; 16 rows of 100 were left out, and are extrapolated
    def law(rows: float, context: float, tokens: float) -> float:
        return 2 + 0.25 * tokens + 0.125 * rows + 0.03125 * rows * context

    profile = by_law(law)
    assert (16, 100) not in profile.curves()
    cost = ProfileCost.of(profile)
    sizes = [
        (r, c, n) for r in (1, 2, 4, 9, 16) for c in (10, 30, 70, 100, 150) for n in (1, 3, 16, 40) if n >= r
    ]
    rows, contexts, tokens = (list(column) for column in zip(*sizes, strict=True))
    cached = [r * c for r, c in zip(rows, contexts, strict=True)]
    assert seconds(cost, rows=rows, tokens=tokens, cached=cached) == pytest.approx([law(*s) for s in sizes])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.001, 1), min_size=18, max_size=18),
    st.integers(1, 40),
    st.floats(0, 300),
    st.booleans(),
)
def test_more_tokens_never_cost_less_and_everything_takes_time(
    noise: list[float], rows: int, context: float, is_captured: bool
) -> None:
    grid = [(r, c, n) for r in (1, 2, 8) for c in (10, 100) for n in (1, 4, 8, 16) if n >= r]
    assert len(grid) == 18
    profile = profile_of(
        [(*size, second) for size, second in zip(grid, noise, strict=True)],
        captured=(2, 8) if is_captured else (),
    )
    sizes = torch.arange(rows, rows + 80, dtype=torch.float64) / 2 + rows / 2
    found = ProfileCost.of(profile).step_time_s(
        decode_rows=torch.tensor(rows),
        tokens=sizes,
        context_tokens=torch.tensor(context * rows),
        draft_tokens=torch.tensor(0),
    )
    assert (found.target_s > 0).all()
    assert (found.target_s.diff() >= -1e-12).all()


# ---- drafter and overhead ----------------------------------------------------------------------


def test_drafter_and_overhead_by_rows_and_depth() -> None:
    drafts = [(1, 0, 9.0, 0.25), (1, 2, 1.0, 0.5), (1, 4, 3.0, 0.5), (3, 2, 2.0, 1.0), (3, 4, 3.0, 1.0)]
    cost = ProfileCost.of(profile_of(ONE_ROW, drafts))
    times = cost.step_time_s(
        decode_rows=torch.tensor([[1], [2], [3]]),
        tokens=torch.tensor(2),
        context_tokens=torch.tensor(0),
        draft_tokens=torch.tensor([0, 1, 2, 4, 6]),
    )
    # nothing is drafted at depth 0; 1 is half way from there; past 4 the line of the last two goes on
    fewest, most = [0.0, 0.5, 1.0, 3.0, 5.0], [0.0, 1.0, 2.0, 3.0, 4.0]
    # at depth 6 both lines cross: in between is their mean all the same
    assert times.draft_s.tolist()[0] == fewest
    assert times.draft_s.tolist()[2] == most
    assert times.draft_s.tolist()[1] == [(a + b) / 2 for a, b in zip(fewest, most, strict=True)]
    assert times.overhead_s.tolist() == [
        [0.25, 0.375, 0.5, 0.5, 0.5],
        [0.625, 0.6875, 0.75, 0.75, 0.75],
        [1.0] * 5,
    ]
    assert times.target_s.tolist() == [[1.0] * 5] * 3
    assert times.total_s.dtype == torch.float64


def test_without_measured_steps_nothing_is_charged_for_them() -> None:
    times = ProfileCost.of(profile_of(ONE_ROW)).step_time_s(
        decode_rows=torch.tensor(1),
        tokens=torch.tensor([2, 4]),
        context_tokens=torch.tensor(0),
        draft_tokens=torch.tensor(3),
    )
    assert times.total_s.tolist() == [1.0, 2.0]


def test_a_profile_has_each_step_once() -> None:
    step = DraftPoint(rows=1, depth=1, draft_s=(1.0,), overhead_s=(1.0,))
    sample = profile_of(ONE_ROW)
    with pytest.raises(ValueError, match="a step of rows, depth is there once, got 1, 1 twice"):
        Profile(
            machine=sample.machine,
            model=sample.model,
            drafter=sample.drafter,
            passes=sample.passes,
            drafts=(step, step),
        )
