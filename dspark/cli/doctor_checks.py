"""The checks of `dspark doctor`: each a pure function of the facts, so that invented facts test it.

``problem`` is what keeps the default commands from working; ``note`` is what they do without, or
what makes their measurements worth less.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark.cli.doctor_facts import Facts, Package

MODEL_BYTES = 538_000_000
"""Weights of the default model in float32: 134.5 million parameters of 4 bytes."""
ROOM_BYTES = 1_000_000_000
"""Free disk below which the files of long runs may not fit."""
BUSY_CORES = 0.2
"""Of others, from which measured speeds are no longer this machine's."""
OFF_MODES = ("disabled", "dryrun")


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check found, and what to do about it."""

    check: str
    level: Level
    found: str
    advice: str = ""


def check_python(facts: Facts) -> Finding:
    """Is this the Python that the package asks for?"""
    from packaging.specifiers import SpecifierSet

    if SpecifierSet(facts.wanted_python).contains(facts.python, prereleases=True):
        return Finding(check="Python", level=Level.OK, found=facts.python)
    advice = f"install Python {facts.wanted_python}, then: make PYTHON=python3.11"
    return Finding(check="Python", level=Level.PROBLEM, found=facts.python, advice=advice)


def check_packages(facts: Facts) -> Finding:
    """Are all packages there, in versions that are allowed?"""
    if not facts.packages:
        advice = "run: pip install -e . in the checkout (or `make setup`)"
        return Finding(
            check="packages", level=Level.PROBLEM, found="dspark itself is not installed", advice=advice
        )
    wrong = [package for package in facts.packages if not package.is_met]
    if wrong:
        return Finding(
            check="packages",
            level=Level.PROBLEM,
            found=", ".join(map(_told, wrong)),
            advice="run: pip install " + " ".join(f"'{package.name}{package.wanted}'" for package in wrong),
        )
    shown = [f"{p.name} {p.found}" for p in facts.packages if p.name in ("torch", "transformers")]
    found = f"all {len(facts.packages)} as asked for ({', '.join(shown)})"
    return Finding(check="packages", level=Level.OK, found=found)


def _told(package: Package) -> str:
    asked = package.wanted or "any version"
    return f"{package.name} {package.found or 'missing'} (asked for: {asked})"


def check_data(facts: Facts) -> Finding:
    """Did prompts, configurations and kernel sources come with the package?"""
    if facts.missing_data:
        return Finding(
            check="package data",
            level=Level.PROBLEM,
            found=f"missing: {', '.join(facts.missing_data)}",
            advice="install dspark again",
        )
    return Finding(check="package data", level=Level.OK, found="configs, prompts and kernel sources")


def check_threads(facts: Facts) -> Finding:
    """Does torch use the cores that are there, and no more?"""
    omp = f"OMP_NUM_THREADS={facts.omp_num_threads or 'unset'}"
    policy = f"OMP_WAIT_POLICY={facts.omp_wait_policy or 'unset'}"
    found = f"{facts.num_threads} of torch on {facts.num_cores} cores, {omp}, {policy}"
    advice = []
    if facts.num_threads > facts.num_cores:
        advice.append(f"more threads than cores: engine.num_threads={facts.num_cores}")
    elif facts.num_threads < facts.num_cores and facts.omp_num_threads:
        advice.append(f"unset OMP_NUM_THREADS, or give engine.num_threads={facts.num_cores}")
    if (facts.omp_wait_policy or "").upper() == "PASSIVE":
        advice.append("unset OMP_WAIT_POLICY for measurements: threads sleep between operations")
    return _noted("threads", found, "; ".join(advice))


def check_load(facts: Facts) -> Finding:
    """Do other processes leave the machine alone?"""
    found = f"others keep {facts.busy_cores:.1f} of {facts.num_cores} cores busy"
    if facts.busy_cores < BUSY_CORES:
        return Finding(check="load", level=Level.OK, found=found)
    who = f" (most: {facts.busiest})" if facts.busiest else ""
    advice = (
        "speeds measured now are not this machine's: wait, or charge modelled seconds "
        "(engine.clock=modelled cost=published)"
    )
    return Finding(check="load", level=Level.NOTE, found=found + who, advice=advice)


def check_memory(facts: Facts) -> Finding:
    """Does the default model fit?"""
    found = f"{_gb(facts.free_memory_bytes)} free; the default model's weights take {_gb(MODEL_BYTES)}"
    if facts.free_memory_bytes < MODEL_BYTES:
        advice = "end other programs, or use a smaller model (target=synthetic is tiny)"
        return Finding(check="memory", level=Level.PROBLEM, found=found, advice=advice)
    is_tight = facts.free_memory_bytes < 2 * MODEL_BYTES
    return _noted("memory", found, "tight: keep engine.max_batch_size and contexts small" if is_tight else "")


def check_disk(facts: Facts) -> Finding:
    """Do the model's conversion and the files of runs fit?"""
    found = f"{_gb(facts.free_disk_bytes)} free beside the cache folder"
    if not facts.is_model_converted and facts.free_disk_bytes < MODEL_BYTES:
        advice = f"free {_gb(MODEL_BYTES)} for the default model, or set DSPARK_CACHE to another disk"
        return Finding(check="disk", level=Level.PROBLEM, found=found, advice=advice)
    return _noted("disk", found, "little: delete old outputs" if facts.free_disk_bytes < ROOM_BYTES else "")


def check_cache(facts: Facts) -> Finding:
    """Can converted models and compiled kernels be kept?"""
    if facts.is_cache_writable:
        return Finding(check="cache folder", level=Level.OK, found=facts.cache_dir)
    return Finding(
        check="cache folder",
        level=Level.PROBLEM,
        found=f"{facts.cache_dir} cannot be written",
        advice="set DSPARK_CACHE to a folder of yours",
    )


def check_model(facts: Facts) -> Finding:
    """Is the default model there?"""
    if facts.model_error is not None:
        found, _, advice = facts.model_error.partition("; ")
        return Finding(check="default model", level=Level.PROBLEM, found=found, advice=advice)
    state = "converted" if facts.is_model_converted else "there; its first use converts it (once)"
    return Finding(check="default model", level=Level.OK, found=f"smollm2 {state}")


def check_device(facts: Facts) -> Finding:
    """Is there a CUDA device that torch can use?"""
    if facts.gpus:
        found = "; ".join(
            f"{gpu.name}, capability {gpu.capability[0]}.{gpu.capability[1]}, "
            f"{_gb(gpu.free_bytes)} of {_gb(gpu.total_bytes)} free"
            for gpu in facts.gpus
        )
        is_full = all(gpu.free_bytes < MODEL_BYTES for gpu in facts.gpus)
        return _noted("device", found, "full: end what uses it, or target.device=cpu" if is_full else "")
    if not facts.has_nvidia_driver:
        return Finding(check="device", level=Level.OK, found="CPU")
    if facts.torch_cuda is None:
        advice = (
            "a driver is there, and torch is a CPU build: install a CUDA build of torch to use the device"
        )
    else:
        advice = (
            f"torch is built for CUDA {facts.torch_cuda} and sees no device: "
            "check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    return Finding(check="device", level=Level.NOTE, found="CPU", advice=advice)


def check_cpu(facts: Facts) -> Finding:
    """Has the processor wide vectors?"""
    found = f"{facts.processor}: {' '.join(facts.vector_flags) or 'no wide vectors'}"
    has_any = any(flag in facts.vector_flags for flag in ("avx2", "avx512f", "asimd"))
    return _noted("processor", found, "" if has_any else "expect slow passes: the kernels use wide vectors")


def check_kernels(facts: Facts) -> Finding:
    """Can the CPU kernels be compiled, and are they?"""
    if facts.compiler is None:
        advice = "passes run through torch's operations, at about half the speed: install g++ or clang++"
        return Finding(check="CPU kernels", level=Level.NOTE, found="no C++ compiler", advice=advice)
    if facts.kernels_error is not None:
        advice = f"delete {facts.kernels}: the next run compiles it anew"
        return Finding(check="CPU kernels", level=Level.NOTE, found=facts.kernels_error, advice=advice)
    state = "compiled" if facts.kernels else "compiled at first use (seconds)"
    return Finding(check="CPU kernels", level=Level.OK, found=f"{state}, with {facts.compiler}")


def check_tracking(facts: Facts) -> Finding:
    """Where does Weights & Biases keep runs? Offline without a key is as good as any."""
    mode = facts.wandb_mode or ("online" if facts.has_wandb_key else "offline")
    if mode == "online" and not facts.has_wandb_key:
        advice = "WANDB_MODE=online without WANDB_API_KEY: set the key, or unset WANDB_MODE"
        return Finding(check="W&B", level=Level.NOTE, found="online, no key", advice=advice)
    told = {"online": "online", "offline": "offline: `wandb sync` uploads a run's folder later"}
    return Finding(check="W&B", level=Level.OK, found="off" if mode in OFF_MODES else told.get(mode, mode))


def check_extras(facts: Facts) -> Finding:
    """Which extras are installed?"""
    there = [name for name, packages in facts.extras.items() if all(p.is_met for p in packages)]
    missing = [name for name in facts.extras if name not in there]
    advice = f"for {', '.join(missing)}: pip install 'dspark[NAME]'" if missing else ""
    found = f"installed: {', '.join(there) or 'none'}"
    return Finding(check="extras", level=Level.OK, found=found, advice=advice)


CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    *(check_python, check_packages, check_data, check_threads, check_load, check_memory, check_disk),
    *(check_cache, check_model, check_device, check_cpu, check_kernels, check_tracking, check_extras),
)
"""All checks, in the order of the table."""


def _noted(check: str, found: str, advice: str) -> Finding:
    """A note if there is something to do."""
    return Finding(check=check, level=Level.NOTE if advice else Level.OK, found=found, advice=advice)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
