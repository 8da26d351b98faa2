"""Sweeps in other processes: a folder a job, and the exit code of a job that failed."""

from __future__ import annotations

import importlib.metadata
import pickle
from typing import TYPE_CHECKING

import pytest

from dspark.analysis.collected import collect
from dspark.cli.launch import JobFailedError
from dspark.config.compose import one_line
from tests.cli.conftest import read_json, run_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hydra.errors import MissingConfigException

    from tests.cli.conftest import Result

SWEEP = ("debug=smoke", "hydra.sweep.dir=sweep", "policy.depth=-1,1")
"""A job that is refused, and one that runs."""


def _needs(package: str, extra: str) -> None:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs pip install 'dspark[{extra}]'")


def _check_sweep(result: Result, folder: Path) -> None:
    assert result.code == 2, result.err
    assert "`dspark report` on the sweep's folder shows which" in result.err
    (row,) = read_json(folder / "sweep" / "1" / "summary.json")["rows"]
    assert (row["policy"], row["output_tokens"]) == ("fixed 1", 16)
    frame = collect([folder / "sweep"])
    assert list(frame["policy.depth"]) == [-1, 1]
    assert list(frame["state"]) == ["no results", "complete"]


def test_joblib_runs_jobs_in_processes(tmp_path: Path, model_cache: Path) -> None:
    _needs("hydra-joblib-launcher", "joblib")
    arguments = ["run", "-m", "hydra/launcher=local", *SWEEP]
    result = run_process(arguments, tmp_path, model_cache)
    _check_sweep(result, tmp_path)
    assert "depth must be >= 0, got -1" in result.err


def test_submitit_runs_jobs_by_its_local_executor(tmp_path: Path, model_cache: Path) -> None:
    _needs("hydra-submitit-launcher", "slurm")
    result = run_process(["run", "-m", "hydra/launcher=submitit_local", *SWEEP], tmp_path, model_cache)
    _check_sweep(result, tmp_path)
    logs = "".join(path.read_text() for path in (tmp_path / "sweep" / ".submitit").glob("*/*.err"))
    assert "depth must be >= 0, got -1" in logs


@pytest.mark.slow
def test_ray_runs_jobs_on_a_local_cluster(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needs("hydra-ray-launcher", "ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # which would leave a token in the home folder
    arguments = ["run", "-m", "hydra/launcher=ray_local", "hydra.launcher.ray.remote.num_cpus=1", *SWEEP]
    _check_sweep(run_process(arguments, tmp_path, model_cache), tmp_path)


def test_a_failed_jobs_exit_code_survives_the_way_back() -> None:
    assert pickle.loads(pickle.dumps(JobFailedError(2))).code == 2


@pytest.mark.parametrize(
    ("option", "extra"),
    [("joblib", "joblib"), ("ray", "ray"), ("submitit_local", "slurm"), ("submitit_slurm", "slurm")],
)
def test_a_launcher_that_is_not_installed_names_its_extra(
    missing_option: Callable[[str], MissingConfigException], option: str, extra: str
) -> None:
    message = one_line(missing_option(f"hydra/launcher/{option}"))
    expected = f"hydra/launcher={option} is not installed: run pip install 'dspark[{extra}]'"
    assert message == expected


@pytest.fixture
def missing_option() -> Callable[[str], MissingConfigException]:
    """What Hydra raises for an option that is nowhere."""
    from hydra.errors import MissingConfigException

    return lambda name: MissingConfigException("no such file", missing_cfg_file=name, options=["basic"])
