"""`dspark profile`: what it measures and writes, that runs go by it, resuming, refusals."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dspark.cli.profile_samples import Samples
from dspark.config.paths import config_dir
from dspark.config.profile import ProfileConfig
from dspark.cost.profile_file import load_profile
from tests.cli.conftest import read_json, read_lines
from tests.cli.test_resume import _num_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

QUICK = (
    *(
        "debug=smoke",
        "hydra.run.dir=out",
        "profile.tokens=[1,2,4,8]",
        "profile.rows=[1,2]",
        "profile.contexts=[8,16]",
    ),
    *("profile.max_cached_tokens=16", "profile.depths=[1,3]", "profile.draft_rows=[1,3]"),
    *("profile.draft_prompt_tokens=8", "profile.repeats=2"),
)
CURVES = [(1, 8, [1, 2, 4, 8]), (1, 16, [1, 2, 4, 8]), (2, 8, [2, 4, 8])]
"""Rows, context and tokens that these settings leave; 2 rows of 16 are more than 16 cached tokens."""
PASSES = [(rows, context, n) for rows, context, sizes in CURVES for n in sizes]
STEPS = [(rows, depth) for rows in (1, 3) for depth in (0, 1, 3)]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures, which take most of the seconds of a profile this small."""
    for name in ("draw_step_time", "draw_tokens_per_s"):
        monkeypatch.setattr(f"dspark.analysis.profile_figures.{name}", lambda profile, path: path)


# ---- what it writes ----------------------------------------------------------------------------


def test_every_size_is_measured_kept_and_shown(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("profile", *QUICK, "tracker=wandb", "tracker.mode=offline")
    assert result.code == 0, result.err
    folder = tmp_path / "out"
    profile = load_profile(folder / "profile.json")
    assert sorted((p.rows, p.context, p.tokens) for p in profile.passes) == PASSES
    assert sorted((p.rows, p.depth) for p in profile.drafts) == STEPS
    assert all(len(p.seconds) == 2 and min(p.seconds) > 0 for p in profile.passes)
    assert all(p.median_draft_s > 0 for p in profile.drafts if p.depth)
    assert all(len(p.overhead_s) == 2 and p.median_overhead_s > 0 for p in profile.drafts)
    assert (profile.model.name, profile.model.dtype, profile.model.numerics) == ("llama", "float32", "fast")
    assert (profile.drafter.name, profile.drafter.verification) == ("ngram", "rejection")
    assert profile.drafter.prompt_tokens == 8
    assert profile.machine.device == "cpu"
    lines = read_lines(folder / "samples.jsonl")
    order = [line.get("context") for line in lines if line["kind"] == "pass"]
    assert order != sorted(order), "the order was not shuffled"
    assert load_profile(tmp_path / "outputs" / "profile" / "profile.json") == profile
    for name in ("step_time", "tokens_per_s"):
        assert (folder / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    mirrored = folder.glob("wandb/offline-run-*/files/media/images/figures/*.png")
    assert {path.name.split("_")[0] for path in mirrored} == {"step", "tokens"}
    for shown in (
        "llama, float32, numerics fast, on ",
        "Passes of the target, ms (medians); columns: rows, cached tokens a row",
        "drafter ngram / overhead of the step, by depth; verification rejection, temperature 0",
        "knee, 1 row of 8 cached tokens: ",
        "linear fit, target: ",
        "linear fit, drafter: ",
        "noise: the repeats of a pass lie ",
        "left out, above profile.max_cached_tokens=16: 2 rows of 16 cached tokens",
        "profile: ",
        "dspark run policy=smartspec cost=profile",
    ):
        assert shown in " ".join(result.out.split()), shown
    # 11 passes and 6 steps: each once untimed, and twice timed
    assert "passes of the target: 33 of 51 runs after " in result.err
    assert "steps of the engine: 51 of 51 runs after " in result.err
    summary = read_json(folder / "summary.json")
    assert summary["complete"]
    assert Counter(row["kind"] for row in summary["rows"]) == {"pass": 11, "draft": 6}
    fit = read_json(folder / "profile.json")["fit"]
    assert fit["target"]["num_points"] == 11
    assert fit["draft"]["num_points"] == 4
    assert f"{100 * fit['target']['max_relative']:.0f} % at most" in result.out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("arguments", "drafter", "depths"),
    [
        (["drafter=none"], "none", {0}),
        (["drafter=self", "profile.depths=[2]"], "self", {0, 2}),
        (["drafter=synthetic", "sampling.temperature=0.8", "verification=coupled"], "synthetic", {0, 1, 3}),
        (["profile.captured_tokens=[4,8]", "engine.numerics=invariant"], "ngram", {0, 1, 3}),
    ],
)
def test_drafters_and_settings(
    dspark: Callable[..., Result], tmp_path: Path, arguments: list[str], drafter: str, depths: set[int]
) -> None:
    result = dspark("profile", *QUICK, "profile.repeats=1", *arguments)
    assert result.code == 0, result.err
    profile = load_profile(tmp_path / "out" / "profile.json")
    assert profile.drafter.name == drafter
    assert {point.depth for point in profile.drafts} == depths
    captured = (4, 8) if "engine.numerics=invariant" in arguments else ()
    assert profile.model.captured_tokens == captured


@pytest.mark.usefixtures("undrawn")
def test_no_copy_where_none_is_wanted(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("profile", *QUICK, "profile.path=null", "profile.repeats=1", "profile.contexts=[8]")
    assert result.code == 0, result.err
    assert not (tmp_path / "outputs").exists()
    assert "cost.path=" in result.out
    assert "left out" not in result.out


# ---- runs that go by it ------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_policies_that_need_costs_run_from_it(dspark: Callable[..., Result]) -> None:
    refused = dspark("run", "debug=smoke", "policy=smartspec")
    assert "policy smartspec needs a cost model" in refused.error
    assert "`dspark profile` measures this machine for cost=profile" in refused.error
    missing = dspark("run", "debug=smoke", "policy=smartspec", "cost=profile")
    assert missing.error == (
        "cost: there is no profile outputs/profile/profile.json: "
        "run `dspark profile` and give its file as cost.path"
    )
    assert dspark("profile", *QUICK).code == 0
    for kind in ("table", "linear"):
        ran = dspark("run", "debug=smoke", "policy=smartspec", "cost=profile", f"cost.kind={kind}")
        assert ran.code == 0, ran.err
        assert "profile" not in ran.err  # it is of this very target
    assert (
        dspark("run", "debug=smoke", "policy=smartspec", "cost=profile", "cost.path=out/profile.json").code
        == 0
    )
    other = dspark("run", "debug=smoke", "policy=smartspec", "cost=profile", "target.family=qwen3")
    assert other.code == 0, other.err
    assert (
        "warning: cost: the profile outputs/profile/profile.json is of target llama, float32, numerics fast, "
        "and this run has qwen3, float32, numerics fast" in other.err
    )
    wrong = dspark("run", "debug=smoke", "policy=smartspec", "cost=profile", "cost.kind=tabel")
    assert wrong.error == "cost.kind must be one of table, linear, got 'tabel'; did you mean 'table'?"


# ---- stopped and resumed -----------------------------------------------------------------------


REPEATS = 3
SAMPLES = [("pass", r, c, n, None, i) for r, c, n in PASSES for i in range(REPEATS)]
SAMPLES += [("draft", r, None, None, d, i) for r, d in STEPS for i in range(REPEATS)]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("num_done", [20, 3 * len(PASSES) + 4], ids=["passes", "steps"])
def test_an_interrupted_profile_goes_on_with_what_is_left(
    dspark: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_done: int
) -> None:
    """Ctrl-C raises KeyboardInterrupt, here in the measurement after ``num_done`` kept ones."""
    settings = ("profile", *QUICK, f"profile.repeats={REPEATS}")
    folder = tmp_path / "out"
    add = Samples.add

    def interrupted(samples: Samples, *arguments: Any) -> None:
        if _num_lines(folder / "samples.jsonl") == num_done:
            raise KeyboardInterrupt
        add(samples, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Samples, "add", interrupted)
        stopped = dspark(*settings)
    assert stopped.code == 130
    assert "go on with: dspark profile " in stopped.err
    assert not (folder / "profile.json").exists()
    before = read_lines(folder / "samples.jsonl")
    assert len(before) == num_done
    with (folder / "samples.jsonl").open("a") as file:
        file.write('{"kind":"pass","rows":1')  # as if it had been killed in the middle of a line
    resumed = dspark(*settings, "resume=true")
    assert resumed.code == 0, resumed.err
    after = read_lines(folder / "samples.jsonl")
    assert after[:num_done] == before
    names = ("kind", "rows", "context", "tokens", "depth", "repeat")
    assert Counter(tuple(line.get(name) for name in names) for line in after) == Counter(SAMPLES)
    profile = load_profile(folder / "profile.json")
    assert all(len(point.seconds) == REPEATS for point in profile.passes)
    again = dspark(*settings, "resume=true")
    assert again.code == 0, again.err
    assert "0 of 0 runs" in again.err
    assert load_profile(folder / "profile.json") == profile


@pytest.mark.usefixtures("undrawn")
def test_another_profile_in_the_folder_moves_the_first_aside(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    for repeats in (1, 2):
        assert dspark("profile", *QUICK, f"profile.repeats={repeats}").code == 0
    aside = load_profile(tmp_path / "out" / "previous-1" / "profile.json")
    assert {len(point.seconds) for point in aside.passes} == {1}
    assert {len(p.seconds) for p in load_profile(tmp_path / "out" / "profile.json").passes} == {2}


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile.tokens=[4,2,1]"], "profile: tokens must ascend from 1 or more, got [4, 2, 1]"),
        (["profile.tokens=[1,2]"], "profile: tokens must name 3 or more sizes, got [1, 2]"),
        (["profile.rows=[]"], "profile: rows must name at least one size, got an empty list"),
        (
            ["profile.rows=[4]"],
            "profile: 3 or more tokens must be at least the fewest rows, 4, got [1, 2, 4, 8]",
        ),
        (["profile.depths=[0,1]"], "profile: depths must ascend from 1 or more, got [0, 1]"),
        (
            ["profile.captured_tokens=[4,4]"],
            "profile: captured_tokens must ascend from 1 or more, got [4, 4]",
        ),
        (["profile.repeats=0"], "profile: repeats must be >= 1, got 0"),
        (["profile.seed=-1"], "profile: seed must be >= 0, got -1"),
        (
            ["profile.max_cached_tokens=7"],
            "profile: max_cached_tokens must leave room for 1 rows of 8 tokens, got 7",
        ),
        (["profile.token=[1]"], "profile has no setting 'token'"),
        (
            ["profile.contexts=[4095]", "profile.max_cached_tokens=9999"],
            "make rows of 4103 tokens, and the target's context is 4096: measure shorter ones",
        ),
        # 8 of the prompt; depths 0, 1, 3 are 1 + 2 + 4 tokens, 701 times, and the deepest step + 2 more
        (["profile.repeats=700"], "need 4920 tokens a row, and the context is 4096: lower profile.repeats"),
        (["policy=fixed"], "`profile` measures every depth and takes no policy: set profile.depths"),
        (["cost=published"], "`profile` measures what steps cost, so it takes cost=none"),
        (["engine.clock=modelled"], "`profile` measures by the wall, got engine.clock=modelled"),
        (["resume=true"], "nothing to resume in"),
    ],
)
def test_profile_refuses(
    dspark: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("a model was loaded before the command was refused")

    monkeypatch.setattr("dspark.config.build.load_target", refuse)
    assert message in dspark("profile", *QUICK, *arguments).error


# ---- settings ----------------------------------------------------------------------------------


def test_the_primary_config_lists_every_setting() -> None:
    section: dict[str, Any] = yaml.safe_load((config_dir() / "profile.yaml").read_text())["profile"]
    assert set(section) == {item.name for item in fields(ProfileConfig)}


def test_the_copy_lies_where_the_cost_model_looks(dspark: Callable[..., Result]) -> None:
    section = yaml.safe_load((config_dir() / "profile.yaml").read_text())["profile"]
    cost = yaml.safe_load((config_dir() / "cost" / "profile.yaml").read_text())
    assert section["path"] == cost["path"]
    shown = dspark("profile", "--help").out
    assert all(re.search(rf"\b{name}\b", shown) for name in section if name != "seed")
