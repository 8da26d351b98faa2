"""Compiles the kernels once a machine and source, and loads them.

The library lies in the cache folder under a hash of the sources, the compiler and the processor's
instruction sets, so a changed source, compiler or machine compiles anew (a few seconds).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from dspark.models.sources import default_cache_dir

SOURCES = Path(__file__).parent / "kernels"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-fast-math",
    "-fopenmp",
    "-shared",
    "-fPIC",
)
"""Products and sums are fused where the source says so and nowhere else, so that every unit agrees."""


class NoCompilerError(RuntimeError):
    """There are no kernels on this machine; says why, in one line."""


def kernel_folder() -> Path:
    """Where converted models and compiled kernels lie.

    Raises:
        NoCompilerError: this user has no home folder, and none is named.
    """
    try:
        return default_cache_dir()
    except RuntimeError as error:
        raise NoCompilerError(f"there is no cache folder ({error}); set DSPARK_CACHE") from error


@functools.cache
def load_kernels(cache_dir: Path) -> ctypes.CDLL:
    """The compiled library; compiles it into ``cache_dir`` the first time.

    Raises:
        NoCompilerError: no C++ compiler is there, it failed, or the folder cannot hold a library.
    """
    try:
        return _load(cache_dir / "native")
    except (OSError, NotImplementedError, subprocess.SubprocessError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise NoCompilerError(f"the compiled kernels cannot be kept in {cache_dir} ({reason})") from error


def compiled_library(cache_dir: Path) -> Path | None:
    """The library of these sources, this compiler and this machine, where it is compiled already.

    Raises:
        NoCompilerError: no C++ compiler is there.
    """
    path = _library(cache_dir / "native", find_compiler())
    return path if path.is_file() else None


def _library(folder: Path, compiler: str) -> Path:
    return folder / f"kernels-{_fingerprint(compiler)}.so"


def _load(folder: Path) -> ctypes.CDLL:
    compiler = find_compiler()
    path = _library(folder, compiler)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):  # two runs that start together compile once
        if path.is_file():
            try:
                return ctypes.CDLL(str(path))
            except OSError:  # half of a file, after a power cut: once more
                path.unlink()
        _compile(compiler, path)
        return ctypes.CDLL(str(path))


def find_compiler() -> str:
    """The path of the C++ compiler that is used.

    Raises:
        NoCompilerError: there is none.
    """
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return found
    raise NoCompilerError("no C++ compiler was found (CXX, g++, clang++ or c++); install one")


def _fingerprint(compiler: str) -> str:
    parts = [path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.is_file()]
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    parts += [version, " ".join(FLAGS).encode(), platform.machine().encode(), _instruction_sets()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _instruction_sets() -> bytes:
    """What ``-march=native`` depends on: a cache folder may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor().encode()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "").encode()


def _compile(compiler: str, path: Path) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    command = [compiler, *FLAGS, str(SOURCES / "decoder.cpp"), "-o", str(partial)]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        partial.unlink(missing_ok=True)
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        reason = next((line for line in lines if "error" in line), lines[-1])
        raise NoCompilerError(f"{compiler} could not compile the kernels ({reason.strip()})")
    partial.rename(path)
