"""`dspark doctor`: every check says ok, note or problem for the facts it gets, and what to do."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from dspark.cli import doctor_facts
from dspark.cli.doctor_checks import CHECKS, MODEL_BYTES, Level
from dspark.cli.doctor_facts import Facts, Gpu, Package

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.cli.conftest import Result

TORCH = Package(name="torch", wanted=">=2.11", found="2.13.0", is_met=True)
OLD = Package(name="pandas", wanted=">=3", found="2.0", is_met=False)
ABSENT = Package(name="ray", wanted="", found=None, is_met=False)
H200 = Gpu(name="H200", capability=(9, 0), total_bytes=140 * 10**9, free_bytes=100 * 10**9)

READY = Facts(
    python="3.11.7",
    wanted_python=">=3.11",
    packages=(TORCH,),
    extras={"notebooks": (TORCH,), "ray": (ABSENT,)},
    missing_data=(),
    processor="A processor",
    vector_flags=("avx2",),
    num_cores=4,
    num_threads=4,
    omp_num_threads=None,
    omp_wait_policy=None,
    busy_cores=0.0,
    busiest=None,
    free_memory_bytes=8 * 10**9,
    free_disk_bytes=50 * 10**9,
    cache_dir="/cache",
    is_cache_writable=True,
    model_error=None,
    is_model_converted=True,
    torch_cuda=None,
    has_nvidia_driver=False,
    gpus=(),
    compiler="/usr/bin/g++",
    kernels="/cache/native/kernels.so",
    kernels_error=None,
    wandb_mode=None,
    has_wandb_key=False,
)
"""A machine on which nothing is wrong."""


def _worse(facts: Facts) -> list[Any]:
    """What the checks find beside ok."""
    return [finding for finding in (check(facts) for check in CHECKS) if finding.level != Level.OK]


def test_a_machine_on_which_nothing_is_wrong_is_ready() -> None:
    assert _worse(READY) == []
    assert len({check(READY).check for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(
    ("changes", "check", "level", "found", "advice"),
    [
        ({"python": "3.10.1"}, "Python", "problem", "3.10.1", "make PYTHON="),
        ({"packages": ()}, "packages", "problem", "not installed", "pip install -e ."),
        ({"packages": (TORCH, OLD)}, "packages", "problem", "pandas 2.0", "pip install 'pandas>=3'"),
        ({"packages": (ABSENT,)}, "packages", "problem", "ray missing", "pip install 'ray'"),
        ({"missing_data": ("chat.jsonl",)}, "package data", "problem", "chat.jsonl", "install dspark again"),
        ({"num_threads": 8}, "threads", "note", "8 of torch on 4 cores", "engine.num_threads=4"),
        ({"num_threads": 1, "omp_num_threads": "1"}, "threads", "note", "OMP_NUM_THREADS=1", "unset OMP_NUM"),
        ({"omp_wait_policy": "passive"}, "threads", "note", "=passive", "unset OMP_WAIT_POLICY"),
        (
            {"busy_cores": 1.96, "busiest": "python, process 7"},
            "load",
            "note",
            "2.0 of 4",
            "engine.clock=mod",
        ),
        ({"free_memory_bytes": MODEL_BYTES - 1}, "memory", "problem", "0.5 GB free", "target=synthetic"),
        ({"free_memory_bytes": 2 * MODEL_BYTES - 1}, "memory", "note", "1.1 GB free", "tight"),
        (
            {"free_disk_bytes": MODEL_BYTES - 1, "is_model_converted": False},
            *("disk", "problem", "0.5 GB free", "DSPARK_CACHE"),
        ),
        ({"free_disk_bytes": MODEL_BYTES - 1}, "disk", "note", "0.5 GB free", "delete old outputs"),
        ({"is_cache_writable": False}, "cache folder", "problem", "/cache", "set DSPARK_CACHE"),
        ({"model_error": "not there; run: pip"}, "default model", "problem", "not there", "run: pip"),
        (
            {"gpus": (replace(H200, free_bytes=0),)},
            "device",
            "note",
            "0.0 GB of 140.0 GB",
            "target.device=cpu",
        ),
        ({"has_nvidia_driver": True}, "device", "note", "CPU", "CPU build"),
        ({"has_nvidia_driver": True, "torch_cuda": "13.0"}, "device", "note", "CPU", "built for CUDA 13.0"),
        ({"vector_flags": ()}, "processor", "note", "no wide vectors", "slow passes"),
        ({"compiler": None, "kernels": None}, "CPU kernels", "note", "no C++ compiler", "install g++"),
        ({"kernels_error": "half a file"}, "CPU kernels", "note", "half a file", "delete /cache/native/"),
        ({"wandb_mode": "online"}, "W&B", "note", "no key", "WANDB_API_KEY"),
    ],
)
def test_what_is_wrong_is_found_by_one_check_that_says_what_to_do(
    changes: dict[str, Any], check: str, level: str, found: str, advice: str
) -> None:
    (finding,) = _worse(replace(READY, **changes))
    assert (finding.check, finding.level) == (check, level)
    assert found in finding.found
    assert advice in finding.advice


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"gpus": (H200,)}, "H200, capability 9.0, 100.0 GB of 140.0 GB free"),
        ({"kernels": None}, "compiled at first use"),
        ({"is_model_converted": False}, "its first use converts it"),
        ({"wandb_mode": "disabled"}, "off"),
        ({"wandb_mode": "online", "has_wandb_key": True}, "online"),
        ({}, "offline"),
        ({}, "installed: notebooks"),
    ],
)
def test_what_is_fine_is_told(changes: dict[str, Any], shown: str) -> None:
    facts = replace(READY, **changes)
    assert _worse(facts) == []
    assert shown in " ".join(check(facts).found for check in CHECKS)


def test_missing_extras_are_no_fault() -> None:
    (extras,) = [finding for finding in (check(READY) for check in CHECKS) if finding.check == "extras"]
    assert (extras.level, extras.advice) == (Level.OK, "for ray: pip install 'dspark[NAME]'")


@pytest.mark.parametrize(("facts", "code"), [(READY, 0), (replace(READY, is_cache_writable=False), 1)])
def test_the_exit_code_says_whether_something_is_a_problem(
    dspark: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, facts: Facts, code: int
) -> None:
    monkeypatch.setattr(doctor_facts, "gather", lambda: facts)
    result = dspark("doctor")
    assert result.code == code
    assert ("ready: dspark compare" in result.out) == (code == 0)
    assert "set DSPARK_CACHE" in result.out or code == 0
    told = json.loads(dspark("doctor", "--json").out)
    assert told["num_problems"] == code
    assert [item["check"] for item in told["checks"]] == [check(facts).check for check in CHECKS]


def test_the_facts_are_those_of_this_machine(dspark: Callable[..., Result]) -> None:
    result = dspark("doctor", "--json")
    facts = json.loads(result.out)["facts"]
    assert facts["python"] == platform.python_version()
    assert facts["num_threads"] == torch.get_num_threads()
    assert facts["num_cores"] == len(os.sched_getaffinity(0))
    assert facts["cache_dir"] == os.environ["DSPARK_CACHE"]
    assert facts["missing_data"] == []
    assert {"name": "torch", "wanted": ">=2.11", "found": torch.__version__, "is_met": True} in facts[
        "packages"
    ]
    assert 0 <= facts["busy_cores"] <= (os.cpu_count() or 1)
    assert facts["free_memory_bytes"] > 0


def test_a_key_is_never_told(dspark: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "very-secret")
    told = dspark("doctor", "--json").out
    assert json.loads(told)["facts"]["has_wandb_key"]
    assert "very-secret" not in told


def test_a_package_that_is_not_there_is_one_line(
    dspark: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_torch() -> Facts:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(doctor_facts, "gather", without_torch)
    assert dspark("doctor").error.startswith("the package torch is not installed: run `make setup`")


def test_a_wrong_flag_names_the_help(dspark: Callable[..., Result]) -> None:
    error = dspark("doctor", "--jsn").error
    assert "--jsn" in error
    assert "`dspark doctor --help`" in error
