"""What `dspark doctor` looks at: one frozen record of this machine and this installation."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil
    from packaging.requirements import Requirement

_SAMPLE_S = 0.5
"""How long the other processes are watched."""
_VECTOR_FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8", "asimd", "sve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One requirement of the package."""

    name: str
    wanted: str  # a version specifier; empty: any version
    found: str | None  # None: not installed
    is_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A CUDA device."""

    name: str
    capability: tuple[int, int]
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the checks judge. Nothing secret: of keys only whether they are there."""

    python: str
    wanted_python: str
    packages: tuple[Package, ...]  # without extras; none: dspark itself is not installed
    extras: dict[str, tuple[Package, ...]]
    missing_data: tuple[str, ...]  # files that come with the package
    processor: str
    vector_flags: tuple[str, ...]  # instruction sets that matter for speed
    num_cores: int  # that this process may use
    num_threads: int  # torch's
    omp_num_threads: str | None
    omp_wait_policy: str | None
    busy_cores: float  # kept busy by other processes
    busiest: str | None  # of them, with its id
    free_memory_bytes: int
    free_disk_bytes: int  # where the cache folder is
    cache_dir: str
    is_cache_writable: bool
    model_error: str | None  # why the default model is not there
    is_model_converted: bool
    torch_cuda: str | None  # the CUDA version that torch was built for
    has_nvidia_driver: bool
    gpus: tuple[Gpu, ...]
    compiler: str | None
    kernels: str | None  # the compiled library in the cache
    kernels_error: str | None  # why it cannot be loaded
    wandb_mode: str | None
    has_wandb_key: bool


def gather() -> Facts:
    """The facts of this machine; takes what importing torch takes, and half a second."""
    import psutil
    import torch

    from dspark.models.sources import default_cache_dir

    cache_dir = default_cache_dir()
    standing = _standing(cache_dir)
    busy_cores, busiest = _others()
    python, packages, extras = _requirements()
    model_error, is_converted = _model(cache_dir)
    compiler, kernels, kernels_error = _kernels(cache_dir)
    return Facts(
        python=platform.python_version(),
        wanted_python=python,
        packages=packages,
        extras=extras,
        missing_data=_missing_data(),
        processor=_cpuinfo("model name") or platform.processor() or platform.machine(),
        vector_flags=_vector_flags(),
        num_cores=_num_cores(),
        num_threads=torch.get_num_threads(),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
        omp_wait_policy=os.environ.get("OMP_WAIT_POLICY"),
        busy_cores=busy_cores,
        busiest=busiest,
        free_memory_bytes=psutil.virtual_memory().available,
        free_disk_bytes=shutil.disk_usage(standing).free,
        cache_dir=str(cache_dir),
        is_cache_writable=standing.is_dir() and os.access(standing, os.W_OK | os.X_OK),
        model_error=model_error,
        is_model_converted=is_converted,
        torch_cuda=torch.version.cuda,
        has_nvidia_driver=Path("/proc/driver/nvidia/version").exists()
        or shutil.which("nvidia-smi") is not None,
        gpus=_gpus(),
        compiler=compiler,
        kernels=kernels,
        kernels_error=kernels_error,
        wandb_mode=os.environ.get("WANDB_MODE"),
        has_wandb_key=bool(os.environ.get("WANDB_API_KEY")),
    )


def _standing(path: Path) -> Path:
    """The nearest of the path and its parents that is there."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _others() -> tuple[float, str | None]:
    """Cores that others keep busy while this process sleeps, and the busiest of them."""
    import psutil

    psutil.cpu_percent()  # counts from here
    before = {process.pid: _spent_s(process) for process in psutil.process_iter()}
    time.sleep(_SAMPLE_S)
    busy_cores = psutil.cpu_percent() / 100 * (psutil.cpu_count() or 1)
    spent = {
        process: _spent_s(process) - before[process.pid]
        for process in psutil.process_iter(["name"])
        if process.pid in before and process.pid != os.getpid()
    }
    if not spent or max(spent.values()) <= 0:
        return busy_cores, None
    busiest = max(spent, key=lambda process: spent[process])
    return busy_cores, f"{busiest.info['name']}, process {busiest.pid}"


def _spent_s(process: psutil.Process) -> float:
    """Processor seconds of a process; 0 where it has ended or may not be asked."""
    import psutil

    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def _requirements() -> tuple[str, tuple[Package, ...], dict[str, tuple[Package, ...]]]:
    """What the installed package asks for: of Python, of packages, and of packages by extra."""
    from packaging.requirements import Requirement

    try:
        told = importlib.metadata.metadata("dspark")
    except importlib.metadata.PackageNotFoundError:
        return "", (), {}
    lines = [Requirement(line) for line in importlib.metadata.requires("dspark") or ()]
    always = [line for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})]
    extras = {
        extra: tuple(
            _package(line)
            for line in lines
            if line not in always and line.marker is not None and line.marker.evaluate({"extra": extra})
        )
        for extra in told.get_all("Provides-Extra") or ()
    }
    return told["Requires-Python"] or "", tuple(map(_package, always)), extras


def _package(requirement: Requirement) -> Package:
    try:
        found = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        found = None
    is_met = found is not None and requirement.specifier.contains(found, prereleases=True)
    return Package(name=requirement.name, wanted=str(requirement.specifier), found=found, is_met=is_met)


def _missing_data() -> tuple[str, ...]:
    """Files that every installation has, by the place where they should be."""
    import dspark
    from dspark.config.paths import config_dir

    try:
        configs = config_dir()
    except ValueError:
        return ("configs",)
    package = Path(dspark.__file__).parent
    places = [configs / "target" / "smollm2.yaml", package / "training" / "held_out.txt"]
    places += [package / "workload" / "data" / f"{name}.jsonl" for name in ("chat", "code", "math")]
    places.append(package / "models" / "native" / "kernels" / "decoder.cpp")
    return tuple(str(place) for place in places if not place.is_file())


def _model(cache_dir: Path) -> tuple[str | None, bool]:
    """Why the default model is not there, and whether it is converted."""
    from dspark.models.sources import smollm2_conversion

    try:
        folder = smollm2_conversion(cache_dir)
    except ValueError as error:
        return str(error), False
    return None, folder.is_dir()


def _kernels(cache_dir: Path) -> tuple[str | None, str | None, str | None]:
    """The compiler, the library that it has made already, and why that cannot be loaded."""
    import ctypes

    from dspark.models.native.compile import NoCompilerError, compiled_library, find_compiler

    try:
        compiler, library = find_compiler(), compiled_library(cache_dir)
    except NoCompilerError:
        return None, None, None
    if library is None:
        return compiler, None, None
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return compiler, str(library), str(error)
    return compiler, str(library), None


def _gpus() -> tuple[Gpu, ...]:
    import torch

    found = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        capability = torch.cuda.get_device_capability(number)
        name = torch.cuda.get_device_name(number)
        found.append(Gpu(name=name, capability=capability, total_bytes=total, free_bytes=free))
    return tuple(found)


def _vector_flags() -> tuple[str, ...]:
    flags = (_cpuinfo("flags") or _cpuinfo("Features") or "").split()
    return tuple(flag for flag in _VECTOR_FLAGS if flag in flags)


def _cpuinfo(field: str) -> str | None:
    """The first line of that name; Linux alone has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), None)
