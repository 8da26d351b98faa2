"""A run that was killed or interrupted goes on where it was, and ends with the same tokens."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.conftest import read_json, read_lines, run_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

LONG = ("debug=smoke", "workload.num_requests=3", "sampling.max_new_tokens=150", "sampling.ignore_eos=true")
COMPARE = (*LONG, "compare.policies=[fixed 0,fixed 4]", "compare.batch_sizes=[1,2]")


def _stop_when(
    arguments: list[str], folder: Path, cache: Path, number: int, is_time: Callable[[], bool]
) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process and send it a signal when it is time."""
    command = [sys.executable, "-m", "dspark", *arguments]
    environment = {**os.environ, "DSPARK_CACHE": str(cache)}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + 120
        while not is_time() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        os.killpg(process.pid, number)  # as a terminal does, W&B's own process included
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _tokens(folder: Path) -> list[tuple[str, int, str]]:
    rows = read_json(folder / "summary.json")["rows"]
    return [(row["policy"], row["batch_size"], row["tokens_sha256"]) for row in rows]


@pytest.fixture(scope="module")
def whole(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the comparison, never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    result = run_process(["compare", *COMPARE, "hydra.run.dir=out"], folder, model_cache)
    assert result.code == 0, result.err
    return folder / "out"


def test_a_killed_comparison_resumes_to_the_same_tokens(
    dspark: Callable[..., Result], tmp_path: Path, model_cache: Path, whole: Path
) -> None:
    folder = tmp_path / "killed"
    arguments = ["compare", *COMPARE, f"hydra.run.dir={folder}"]

    def in_the_second_cell() -> bool:
        cells = read_lines(folder / "cells.jsonl") if _num_lines(folder / "cells.jsonl") else []
        return bool(cells) and _num_lines(folder / "steps.jsonl") > cells[0]["row"]["target_passes"] + 20

    killed = _stop_when(arguments, tmp_path, model_cache, signal.SIGKILL, in_the_second_cell)
    assert killed.returncode == -signal.SIGKILL
    finished = _num_lines(folder / "cells.jsonl")
    assert 1 <= finished < 4
    assert not read_json(folder / "summary.json")["complete"]
    with (folder / "steps.jsonl").open("a") as file:
        file.write('{"cell":"fixed 4/batch 1')  # as if the kill had torn the line
    resumed = dspark(*arguments, "resume=true")
    assert resumed.code == 0, resumed.err
    assert f"cell {finished} of 4" not in resumed.err  # not run again
    assert "cell 4 of 4" in resumed.err
    assert _tokens(folder) == _tokens(whole)
    steps = {item["cell"]: 0 for item in read_lines(folder / "steps.jsonl")}
    for item in read_lines(folder / "steps.jsonl"):
        steps[item["cell"]] += 1
    # no step of the attempt that was killed is left
    assert steps == {
        cell["cell"]: cell["row"]["target_passes"] for cell in read_lines(folder / "cells.jsonl")
    }
    assert len(read_json(folder / "provenance.json")["resumed"]) == 1


def test_an_interrupt_is_exit_code_130_and_says_how_to_go_on(
    dspark: Callable[..., Result], tmp_path: Path, model_cache: Path, whole: Path
) -> None:
    folder = tmp_path / "interrupted"
    arguments = ["compare", *COMPARE, f"hydra.run.dir={folder}"]
    tracked = ["tracker=wandb", "tracker.mode=offline"]
    stopped = _stop_when(
        [*arguments, *tracked],
        tmp_path,
        model_cache,
        signal.SIGINT,
        lambda: _num_lines(folder / "cells.jsonl") > 0,
    )
    assert stopped.returncode == 130, stopped.stderr
    assert "Traceback" not in stopped.stderr
    (line,) = [line for line in stopped.stderr.splitlines() if "interrupted" in line]
    assert line.startswith("dspark: interrupted; go on with: dspark compare ")
    assert line.endswith(f"{' '.join(tracked)} hydra.run.dir={folder} resume=true")
    partial = read_json(folder / "summary.json")
    assert not partial["complete"]
    assert len(partial["rows"]) >= 1
    assert dspark(*arguments, "resume=true").code == 0
    assert _tokens(folder) == _tokens(whole)


def test_a_killed_run_goes_on_with_the_requests_it_has_left(
    dspark: Callable[..., Result], tmp_path: Path, model_cache: Path
) -> None:
    settings = ["run", *LONG, "engine.max_batch_size=1", "policy.depth=2"]
    assert dspark(*settings, "hydra.run.dir=whole").code == 0
    folder = tmp_path / "killed"
    arguments = [*settings, f"hydra.run.dir={folder}"]
    _stop_when(
        arguments,
        tmp_path,
        model_cache,
        signal.SIGKILL,
        lambda: _num_lines(folder / "outputs.jsonl") == 1 and _num_lines(folder / "steps.jsonl") > 170,
    )
    before = read_lines(folder / "outputs.jsonl")
    assert 1 <= len(before) < 3
    assert dspark(*arguments, "resume=true").code == 0
    after = read_lines(folder / "outputs.jsonl")
    assert after[: len(before)] == before
    assert [item["attempt"] for item in after] == [0] * len(before) + [1] * (3 - len(before))
    rows: list[dict[str, Any]] = [
        read_json(path / "summary.json")["rows"][0] for path in (tmp_path / "whole", folder)
    ]
    same = ("tokens_sha256", "output_tokens", "drafted_tokens", "accepted_tokens", "num_requests")
    assert [rows[1][key] for key in same] == [rows[0][key] for key in same]
    # the time of the lost steps is not forgotten
    assert rows[1]["wall_s"] == pytest.approx(
        sum(item["wall_s"] for item in read_lines(folder / "steps.jsonl"))
    )


def test_resuming_a_finished_run_changes_nothing(dspark: Callable[..., Result], tmp_path: Path) -> None:
    arguments = ["debug=smoke", "hydra.run.dir=out"]
    for command in ("run", "compare"):
        assert dspark(command, *arguments).code == 0
        before = _tokens(tmp_path / "out")
        lines = _num_lines(tmp_path / "out" / "steps.jsonl")
        result = dspark(command, *arguments, "resume=true")
        assert result.code == 0, result.err
        assert _tokens(tmp_path / "out") == before
        assert _num_lines(tmp_path / "out" / "steps.jsonl") == lines
        shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("change", ["sampling.max_new_tokens=9", "engine.seed=1", "policy.depth=2"])
def test_another_configuration_is_not_resumed(
    dspark: Callable[..., Result], tmp_path: Path, change: str
) -> None:
    arguments = ["run", "debug=smoke", "hydra.run.dir=out"]
    assert dspark(*arguments).code == 0
    before = (tmp_path / "out" / "outputs.jsonl").read_text()
    key = change.partition("=")[0]
    assert f"had {key}=" in dspark(*arguments, change, "resume=true").error
    assert (tmp_path / "out" / "outputs.jsonl").read_text() == before


def test_the_tracker_may_change_on_resume(dspark: Callable[..., Result]) -> None:
    arguments = ["run", "debug=smoke", "hydra.run.dir=out"]
    assert dspark(*arguments).code == 0
    result = dspark(*arguments, "tracker=wandb", "tracker.mode=offline", "resume=true")
    assert result.code == 0, result.err
