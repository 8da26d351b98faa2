"""``python -m experiments.replay_against_live`` on a tiny target: equal steps, both speeds, one file."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from dspark.analysis.replay.files import read_trace, write_trace
from experiments import commands
from experiments.replay_against_live import __main__ as experiment
from tests.documents import REPO, blocks, command_lines

PROFILE = (
    *("profile.tokens=[1,2,4,8]", "profile.rows=[1,2]", "profile.contexts=[8,16]", "profile.depths=[1,3]"),
    *("profile.max_cached_tokens=32", "profile.draft_rows=[1,2]", "profile.draft_prompt_tokens=8"),
    "profile.repeats=2",
)
POLICIES = (
    "fixed 0",
    "fixed 3",
    "batch_table",
    "confidence depth=3 threshold=0.05",
    "prefix_scheduler depth=3",
)


@pytest.fixture(scope="module")
def arguments(
    tiny_llama: Path, tiny_llama_drafter: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """A random target and a drafter that is right now and then; everything else by words."""
    models = [f"target.source={tiny_llama}", f"drafter.source={tiny_llama_drafter}"]
    settings = ["target=pretrained", "drafter=draft_model", *models, "workload.num_requests=3"]
    # its drafters have no confidence head
    policies = [text + " estimator=top1" * text.startswith("prefix") for text in POLICIES]
    return [
        *("--out", str(tmp_path_factory.mktemp("live")), "--policies", *policies, "--batch-sizes", "1", "2"),
        *("--new-tokens", "9", "--repeats", "2", "--profile", *PROFILE, "--", *settings),
    ]


@pytest.fixture(scope="module")
def result(arguments: list[str]) -> tuple[int, Path]:
    """The exit code and the folder of the experiment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("draw_step_time", "draw_tokens_per_s"):  # of the profile, whose seconds they are
            patch.setattr(f"dspark.analysis.profile_figures.{name}", lambda profile, path: path)
        return experiment.main(arguments), Path(arguments[1])


def _rows(out: Path) -> list[dict]:
    return json.loads((out / "replay_against_live.json").read_text())["rows"]


def test_every_live_run_is_its_replay(result: tuple[int, Path]) -> None:
    code, out = result
    rows = _rows(out)
    assert [row["batch_size"] for row in rows] == [1] * 5 + [2] * 5
    assert [row["first_difference"] for row in rows] == [None] * 10
    assert all(row["is_equal"] for row in rows)
    assert code == (0 if all(row["is_within_band"] for row in rows) else 1)
    plain, deep = (next(row for row in rows if row["policy"] == name) for name in ("fixed 0", "fixed 3"))
    assert deep["num_steps"] < plain["num_steps"], "something was accepted"
    assert (out / "replay_against_live.png").read_bytes().startswith(b"\x89PNG")


def test_errors_are_of_modelled_over_measured(result: tuple[int, Path]) -> None:
    for row in _rows(result[1]):
        assert len(row["repeats"]) == 2
        measured = sum(row["repeats"]) / 2  # the median of two
        assert row["measured_decode_tokens_per_s"] == pytest.approx(measured)
        assert row["error"] == pytest.approx(row["modelled_decode_tokens_per_s"] / measured - 1)
        assert row["is_within_band"] is (abs(row["error"]) <= 0.05)


def test_another_trace_is_told_apart_and_no_stage_runs_again(
    result: tuple[int, Path],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = read_trace(result[1] / "trace" / "trace.parquet")
    wrong = replace(trace, accepted=trace.accepted * 0)
    write_trace(wrong, tmp_path / "wrong.parquet")

    def refuse(words: list[str]) -> int:
        raise AssertionError(f"run again: {words}")

    monkeypatch.setattr(commands, "dspark", refuse)
    before = (result[1] / "replay_against_live.json").read_text()
    assert experiment.main(["--trace", str(tmp_path / "wrong.parquet"), *arguments]) == 1
    rows = {(row["policy"], row["batch_size"]): row for row in _rows(result[1])}
    (result[1] / "replay_against_live.json").write_text(before)
    assert rows["fixed 0", 1]["is_equal"], "nothing is verified"
    assert not rows["fixed 3", 1]["is_equal"]
    assert "accepted" in rows["fixed 3", 1]["first_difference"]
    assert "fixed 3, batch 1: step " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--policies", "fixd 2"], "fixd"),
        (["--policies", "fixed 2", "fixed 2"], "--policies names 'fixed 2' twice"),
        (["--trace", "nothing.parquet"], "there is no trace nothing.parquet"),
        (["--batch-sizes", "4", "0"], "--batch-sizes must be >= 1, got 0"),
        (["--new-tokens", "1"], "--new-tokens must be >= 2, got 1"),
        (["--repeats", "0"], "--repeats must be >= 1, got 0"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    change: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert experiment.main([*change, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_documented_commands_are_understood() -> None:
    page = REPO / "experiments" / "replay_against_live" / "README.md"
    lines = [line for block in blocks(page, "bash") for line in command_lines(block)]
    assert lines
    for line in lines:
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "experiments.replay_against_live"]
        assert experiment._parser().parse_args(words[3:]).policies == list(experiment.POLICIES)
    assert experiment.named_policies(experiment.POLICIES).keys() == set(experiment.POLICIES)
    assert f"`{lines[0]}`" in (REPO / "experiments" / "README.md").read_text()
