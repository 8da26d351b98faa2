"""Where a result comes from: command, versions, revision, machine. Nothing secret."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import dspark

if TYPE_CHECKING:
    from dspark.cli.launch import Invocation

_PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "hydra-core", "omegaconf", "numpy", "wandb")


def provenance(invocation: Invocation, *, device: torch.device, num_threads: int) -> dict[str, Any]:
    """What a reader needs to repeat the run, as plain values."""
    return {
        "command": command_line(invocation),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **surroundings(),
        "threads": num_threads,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "config": invocation.plain,
    }


def surroundings() -> dict[str, Any]:
    """Versions, revision and machine, whatever runs there."""
    return {
        "versions": _versions(),
        "git": _git_revision(Path(dspark.__file__).resolve().parents[1]),
        "machine": _machine(),
    }


def command_line(invocation: Invocation) -> str:
    """The command as it can be typed again."""
    return shlex.join(["dspark", invocation.command, *invocation.arguments])


def _versions() -> dict[str, str]:
    found = {"dspark": dspark.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git_revision(root: Path) -> dict[str, Any] | None:
    """Revision of the sources and whether they were changed; None outside a checkout."""
    if not (root / ".git").exists():
        return None
    revision = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain")
    return None if revision is None else {"revision": revision, "dirty": bool(changed)}


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, or no commit yet
        return None
    return done.stdout.strip()


def _machine() -> dict[str, Any]:
    return {
        "platform": platform.platform(),
        "processor": processor(),
        "num_cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def processor() -> str:
    """The processor's name; /proc knows it on Linux, where ``platform`` does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
