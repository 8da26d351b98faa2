"""What W&B's own reader finds in an offline run's file is what was measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dspark.metrics.tracker import NoTracker, WandbTracker, step_numbers
from tests.metrics.wandb_server import WandbServer

if TYPE_CHECKING:
    from dspark.types import StepRecord

REPO = Path(__file__).resolve().parents[2]
WANDB = Path(sys.executable).parent / "wandb"
ROW = {
    "policy": "fixed 4",
    "batch_size": 2,
    "output_tokens": 11,
    "tokens_per_s": 2.5,
    "acceptance_rate": None,
}


def _tracker(folder: Path, **settings: Any) -> WandbTracker:
    defaults: dict[str, Any] = {"project": "p", "name": None, "tags": ["t"], "mode": "offline"}
    return WandbTracker(
        folder, **{**defaults, "may_fall_back": False, "config": {"engine": {"seed": 7}}, **settings}
    )


TRACK_ONE_STEP = """
import sys
from pathlib import Path
from dspark.metrics import tracker
from tests.metrics.conftest import make_row, make_step

tracker._INIT_TIMEOUT_S["online"] = 2
settings = {"project": "p", "name": "n", "tags": [], "mode": "online", "config": {}}
mirror = tracker.WandbTracker(Path(sys.argv[1]), may_fall_back=sys.argv[2] == "1", **settings)
mirror.step("", make_step(0, [make_row("a", drafted=2, accepted=1)], wall_s=0.5))
mirror.close(0)
"""
"""W&B keeps its server and key for the life of a process, so online runs get one of their own."""


def _track_online(folder: Path, environment: dict[str, str], *, may_fall_back: bool) -> str:
    everything = {**os.environ, **environment, "PYTHONPATH": str(REPO)}
    everything.pop("WANDB_MODE", None)
    command = [sys.executable, "-c", TRACK_ONE_STEP, str(folder), str(int(may_fall_back))]
    done = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def sync(run_file: Path, server: WandbServer) -> None:
    """Send an offline run with `wandb sync`."""
    environment = {**os.environ, **server.environment}
    environment.pop("WANDB_MODE", None)
    command = [str(WANDB), "sync", str(run_file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_step_numbers(steps: list[StepRecord]) -> None:
    assert step_numbers(steps[2]) == {
        "step": 2,
        "batch": 2,
        "prefill_tokens": 0,
        "emitted_tokens": 6,
        "drafted_tokens": 6,
        "verified_tokens": 6,
        "accepted_tokens": 4,
        "wall_s": 0.5,
        "depth": 3.0,
        "acceptance_rate": 4 / 6,
        "tokens_per_s": 12.0,
    }
    prefill_only = step_numbers(steps[0])
    assert not {"acceptance_rate", "depth"} & set(prefill_only)


def test_an_offline_run_read_back_holds_the_steps_the_summary_and_the_config(
    tmp_path: Path, steps: list[StepRecord]
) -> None:
    tracker = _tracker(tmp_path)
    for step in steps:
        tracker.step("fixed 4/batch 2", step)
    tracker.summarise({"fixed 4/batch 2": ROW}, [])
    tracker.close(0)
    (run_file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    with WandbServer() as server:
        sync(run_file, server)
    prefix = "fixed_4/batch_2/"
    found = [
        {key.removeprefix(prefix): value for key, value in line.items() if key.startswith(prefix)}
        for line in server.history
    ]
    assert [each for each in found if each] == [step_numbers(step) for step in steps]
    assert server.summary[f"{prefix}summary/output_tokens"] == 11
    assert server.summary[f"{prefix}summary/tokens_per_s"] == 2.5
    assert f"{prefix}summary/acceptance_rate" not in server.summary
    assert server.config["engine"]["value"] == {"seed": 7}


def test_an_online_run_arrives_at_the_server(tmp_path: Path) -> None:
    with WandbServer() as server:
        said = _track_online(tmp_path, server.environment, may_fall_back=False)
    assert [line["accepted_tokens"] for line in server.history] == [1], said


def test_a_server_out_of_reach_means_offline_with_a_warning_or_an_error(tmp_path: Path) -> None:
    with WandbServer() as server:
        gone = server.environment
    said = _track_online(tmp_path / "a", gone, may_fall_back=True)
    assert "tracking offline" in said
    assert len(list(tmp_path.glob("a/wandb/offline-run-*/run-*.wandb"))) == 1, said
    said = _track_online(tmp_path / "b", gone, may_fall_back=False)
    assert "use tracker.mode=offline or tracker=none" in said


def test_nothing_is_sent_before_flush(
    tmp_path: Path, steps: list[StepRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = _tracker(tmp_path)
    sent: list[Any] = []
    monkeypatch.setattr(tracker._run, "log", sent.append)
    tracker.step("", steps[0])
    assert sent == []
    tracker.flush()
    tracker.flush()
    assert sent == [step_numbers(steps[0])]
    tracker.close(0)


def test_a_resumed_run_keeps_its_id(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):
        tracker = _tracker(tmp_path)
        ids.add(tracker._run.id)
        tracker.close(1)
    assert len(ids) == 1


def test_the_other_tracker_does_nothing(steps: list[StepRecord]) -> None:
    tracker = NoTracker()
    tracker.step("", steps[0])
    tracker.flush()
    tracker.summarise({"": ROW}, [])
    tracker.close(0)
