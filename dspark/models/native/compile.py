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

SOURCES = Path(__file__).parent / "kernels"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC")
"""Products and sums are fused where the source says so and nowhere else, so that every unit agrees."""


class NoCompilerError(RuntimeError):
    """There are no kernels on this machine; says why, in one line."""


@functools.cache
def load_kernels(cache_dir: Path) -> ctypes.CDLL:
    """The compiled library; compiles it into ``cache_dir`` the first time.

    Raises:
        NoCompilerError: no C++ compiler is there, or it failed.
    """
    compiler = _compiler()
    path = cache_dir / "native" / f"kernels-{_fingerprint(compiler)}.so"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # two runs that start together compile once
            if not path.is_file():
                _compile(compiler, path)
    return ctypes.CDLL(str(path))


def _compiler() -> str:
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        partial.unlink(missing_ok=True)
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
        raise NoCompilerError(f"{compiler} could not compile the kernels ({reason.strip()})")
    partial.rename(path)
