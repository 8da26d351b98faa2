"""`dspark calibrate`: recording, temperatures that are loaded again, resuming, refusals."""

from __future__ import annotations

import signal
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml

from dspark.analysis.calibration import calibrate
from dspark.analysis.predictions import predict
from dspark.config.calibrate import CalibrateConfig
from dspark.config.paths import config_dir
from dspark.metrics.observations import read_observations
from dspark.policies.estimators import ESTIMATORS, build_estimator
from tests.cli.conftest import read_json, read_lines
from tests.cli.test_resume import _num_lines, _stop_when
from tests.documents import REPO, blocks, command_lines, run_shortened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

SMOKE = ("debug=smoke", "hydra.run.dir=out")

OVERCONFIDENT = (
    *SMOKE,
    *(
        "drafter=synthetic",
        "drafter.acceptance=[0.9]",
        "drafter.spread=0.5",
        "calibrate.estimator=confidence",
    ),
    *("verification=synthetic", "verification.rates=[0.6,0.6,0.6]", "calibrate.depth=3"),
    *("workload.num_requests=16", "sampling.max_new_tokens=100", "sampling.ignore_eos=true"),
)
"""A drafter that says 0.9 and is accepted at 0.6."""

DOCUMENT = REPO / "docs" / "calibration.md"


# ---- what it writes ----------------------------------------------------------------------------


def test_an_overconfident_drafter_is_repaired(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("calibrate", *OVERCONFIDENT)
    assert result.code == 0, result.err
    found = read_json(tmp_path / "out" / "calibration.json")
    assert (found["schema"], found["estimator"]) == (1, "confidence")
    assert [position["position"] for position in found["positions"]] == [1, 2, 3]
    for position in found["positions"]:
        assert position["fitted"]
        assert position["temperature"] > 2  # logit 0.9 / logit 0.6 is 5.4
        assert position["survival"]["before"]["ece"] > 0.2
        assert position["survival"]["after"]["ece"] < 0.1
        assert position["survival"]["after"]["brier"] < position["survival"]["before"]["brier"]
    assert found["survival"]["after"]["ece"] < found["survival"]["before"]["ece"] / 4
    assert len(found["fit_requests"]) == len(found["evaluation_requests"]) == 8
    assert "confidence: llama, 16 requests of builtin, drafter synthetic" in result.out
    assert (tmp_path / "out" / "figures" / "reliability.png").read_bytes()[:4] == b"\x89PNG"


def test_every_draft_is_verified_whole_and_recorded_once(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    assert dspark("calibrate", *OVERCONFIDENT, "engine.max_batch_size=3").code == 0
    folder = tmp_path / "out"
    rows = [item["rows"] for item in read_lines(folder / "steps.jsonl") if item["rows"]["request_id"]]
    steps = read_lines(folder / "observations.jsonl")
    names = {
        "request_id": "request_id",
        "verified": "drafted",
        "accepted": "accepted",
        "context": "context_lengths",
    }
    for of_step, of_observation in names.items():
        assert [row[of_step] for row in rows] == [step[of_observation] for step in steps]
    assert all(step["drafted"] == step["verified"] for step in steps)
    assert all(set(step["signals"]) <= {"confidence"} for step in steps)
    (row,) = read_json(folder / "summary.json")["rows"]
    assert row["policy"] == "fixed 3"
    assert sum(sum(step["verified"]) for step in steps) == row["verified_tokens"]


def test_temperatures_load_into_the_estimator_and_say_the_same(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    assert dspark("calibrate", *OVERCONFIDENT).code == 0
    folder = tmp_path / "out"
    written = read_json(folder / "temperatures.json")
    estimator = build_estimator(written["estimator"], temperatures=folder / "temperatures.json")
    assert build_estimator("confidence", temperatures=written["temperatures"]) == estimator
    observations = read_observations(folder)
    requests = {name for observation in observations for name in observation.request_ids}
    settings: dict[str, Any] = {"fit_fraction": 0.5, "num_bins": 15, "min_samples": 50, "seed": 0}
    found = calibrate(predict(observations, build_estimator("confidence"), 3), requests, **settings)
    assert list(found.temperatures) == written["temperatures"]
    assert found.survival.after.ece == read_json(folder / "calibration.json")["survival"]["after"]["ece"]
    loaded = predict(observations, estimator, 3).of(found.evaluation_requests)
    torch.testing.assert_close(loaded.conditional, found.after.conditional, equal_nan=True)
    assert written["fit"]["fitted"] == [True] * 3
    assert written["provenance"]["command"].startswith("dspark calibrate debug=smoke")
    assert {"target", "drafter", "verification", "versions"} <= set(written["provenance"])


def test_a_smoke_run_says_that_its_samples_are_few(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("calibrate", *SMOKE)
    assert result.code == 0, result.err
    assert "nothing was fitted: fewer than 50 drafts" in result.out
    assert read_json(tmp_path / "out" / "temperatures.json")["temperatures"] == [1.0] * 7
    assert len(read_json(tmp_path / "out" / "calibration.json")["positions"]) == 7


def test_temperatures_at_an_end_of_the_grid_are_named(dspark: Callable[..., Result]) -> None:
    hopeless = [word for word in OVERCONFIDENT if "rates" not in word]
    result = dspark("calibrate", *hopeless, "verification.rates=[0.5,0.5,0.5]")
    assert "temperatures at an end of what was tried (0.125 to 8), positions 1" in result.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["calibrate.estimator=token_probability"],
        ["drafter=self", "sampling.temperature=0.8"],
        [
            "drafter=self",
            "calibrate.estimator=entropy_bound",
            "verification=coupled",
            "sampling.temperature=1",
        ],
        ["drafter=self", "calibrate.estimator=entropy_bound", "calibrate.settings={gamma:0.15}"],
        ["drafter=self", "calibrate.estimator=margin_logistic", "calibrate.depth=3"],
        ["drafter=self", "calibrate.estimator=request_ema", "verification=block"],
        ["calibrate.estimator=position_window", "engine.max_batch_size=1"],
        ["calibrate.estimator=constant", "calibrate.settings={alpha:0.4}"],
        ["drafter=synthetic", "calibrate.estimator=confidence", "drafter.autoregressive=false"],
    ],
)
def test_every_estimator_with_a_drafter_that_tells_what_it_reads(
    dspark: Callable[..., Result], tmp_path: Path, arguments: list[str]
) -> None:
    result = dspark("calibrate", *SMOKE, "calibrate.depth=2", *arguments, "calibrate.min_samples=1")
    assert result.code == 0, result.err
    (name,) = [
        word.split("=")[1] for word in ["calibrate.estimator=top1", *arguments] if "estimator" in word
    ][-1:]
    assert read_json(tmp_path / "out" / "temperatures.json")["estimator"] == name


def test_the_target_as_its_own_drafter_is_always_accepted(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    assert dspark("calibrate", *SMOKE, "drafter=self", "engine.numerics=invariant").code == 0
    for position in read_json(tmp_path / "out" / "calibration.json")["positions"]:
        for kind in ("conditional", "survival"):
            assert position[kind]["num_accepted"] == position[kind]["num_samples"]
            assert position[kind]["before"]["roc_auc"] is None


def test_the_offline_mirror_takes_the_figure(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("calibrate", *SMOKE, "tracker=wandb", "tracker.mode=offline")
    assert result.code == 0, result.err
    assert list(
        (tmp_path / "out" / "wandb").glob("offline-run-*/files/media/images/figures/reliability*.png")
    )


# ---- stopped and resumed -----------------------------------------------------------------------


def test_an_interrupted_calibration_goes_on_to_the_same_scores(
    dspark: Callable[..., Result], tmp_path: Path, model_cache: Path
) -> None:
    settings = ["calibrate", *(word for word in OVERCONFIDENT if word != "hydra.run.dir=out")]
    settings += ["engine.max_batch_size=1", "workload.num_requests=6", "sampling.max_new_tokens=150"]
    assert dspark(*settings, "hydra.run.dir=whole").code == 0
    folder = tmp_path / "stopped"
    arguments = [*settings, f"hydra.run.dir={folder}"]
    stopped = _stop_when(
        arguments, tmp_path, model_cache, signal.SIGINT, lambda: _num_lines(folder / "outputs.jsonl") > 0
    )
    assert stopped.returncode == 130, stopped.stderr
    assert "go on with: dspark calibrate " in stopped.stderr
    assert not (folder / "calibration.json").exists()
    assert not read_json(folder / "summary.json")["complete"]
    with (folder / "observations.jsonl").open("a") as file:
        file.write('{"attempt":0,"step":9')  # as if it had been killed
    resumed = dspark(*arguments, "resume=true")
    assert resumed.code == 0, resumed.err
    assert {item["attempt"] for item in read_lines(folder / "observations.jsonl")} == {0, 1}
    whole, found = (read_json(path / "calibration.json") for path in (tmp_path / "whole", folder))
    assert found.pop("provenance") != whole.pop("provenance")
    assert found == whole


def test_another_calibration_in_the_folder_moves_the_first_aside(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    assert dspark("calibrate", *SMOKE).code == 0
    first = (tmp_path / "out" / "observations.jsonl").read_text()
    assert dspark("calibrate", *SMOKE, "calibrate.depth=2").code == 0
    aside = tmp_path / "out" / "previous-1"
    assert (aside / "observations.jsonl").read_text() == first
    assert len(read_json(aside / "temperatures.json")["temperatures"]) == 7
    assert len(read_json(tmp_path / "out" / "temperatures.json")["temperatures"]) == 2


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate.estimator=top2"], "calibrate: estimator must be one of constant, "),
        (
            ["calibrate.estimator=entropy_bound", "drafter=synthetic"],
            "estimator entropy_bound needs the signal entropy, which the drafter",
        ),
        (
            ["calibrate.estimator=constant", "calibrate.settings={beta:1}"],
            "estimator constant has no setting 'beta'",
        ),
        (["calibrate.settings=7"], "calibrate.settings must be a mapping, got 7"),
        (["calibrate.depth=0"], "calibrate: depth must be >= 1, got 0"),
        (["calibrate.depth=two"], "calibrate.depth must be a whole number, got 'two'"),
        (["calibrate.num_bins=0"], "calibrate: num_bins must be >= 1, got 0"),
        (["calibrate.min_samples=0"], "calibrate: min_samples must be >= 1, got 0"),
        (["calibrate.fit_fraction=1"], "calibrate: fit_fraction must be in (0, 1), got 1.0"),
        (["calibrate.seed=-1"], "calibrate: seed must be >= 0, got -1"),
        (["calibrate.dept=3"], "calibrate has no setting 'dept'"),
        (["drafter=none"], "`calibrate` needs a drafter whose tokens are accepted or not"),
        (["workload.num_requests=1"], "it needs two or more, got 1"),
        (["policy=fixed"], "`calibrate` verifies every draft in full and takes no policy"),
        (["policy.depth=2"], "`calibrate` verifies every draft in full and takes no policy"),
        (["verification=synthetic", "verification.rates=[0.5]"], "1 rates, but drafts reach depth 7"),
        (["sampling.temperature=-1"], "temperature must be >= 0"),
        (["resume=true"], "nothing to resume in"),
    ],
)
def test_calibrate_refuses(
    dspark: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("a model was loaded before the command was refused")

    monkeypatch.setattr("dspark.config.build.load_target", refuse)
    assert message in dspark("calibrate", *SMOKE, *arguments).error


# ---- settings and documents --------------------------------------------------------------------


def test_the_primary_config_lists_every_setting() -> None:
    section = yaml.safe_load((config_dir() / "calibrate.yaml").read_text(encoding="utf-8"))["calibrate"]
    assert set(section) == {item.name for item in fields(CalibrateConfig)}


def test_help_and_document_name_every_estimator(dspark: Callable[..., Result]) -> None:
    shown, text = dspark("calibrate", "--help").out, DOCUMENT.read_text(encoding="utf-8")
    for name in ESTIMATORS:
        assert name in shown
        assert f"`{name}`" in text


def test_what_the_document_shows_runs_in_its_order(
    dspark: Callable[..., Result], tiny_llama: Path, tiny_llama_drafter: Path
) -> None:
    models = {"org/large": tiny_llama, "org/small": tiny_llama_drafter}
    commands = [line for block in blocks(DOCUMENT, "bash") for line in command_lines(block)]
    assert [command for command in commands if run_shortened(command, models) != 0] == []
    (source,) = blocks(DOCUMENT, "python")
    namespace: dict[str, Any] = {}
    exec(compile(source, str(DOCUMENT), "exec"), namespace)
    assert namespace["found"].evaluation_requests
