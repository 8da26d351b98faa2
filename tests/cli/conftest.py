"""The command, run inside the test's process, in a folder of its own."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from dspark.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Result:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of a refused command."""
        lines = self.err.splitlines()
        assert self.code == 2, self.err
        assert len(lines) == 1, self.err
        assert lines[0].startswith("dspark: error: "), self.err
        return lines[0].removeprefix("dspark: error: ")


Dspark = "Callable[..., Result]"


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tiny models are made once for all tests of the command."""
    return tmp_path_factory.mktemp("dspark-cache")


@pytest.fixture
def dspark(
    tmp_path: Path, model_cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Result]]:
    """``dspark("run", "policy=fixed")`` is what `dspark run policy=fixed` does, in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSPARK_CACHE", str(model_cache))

    def call(*arguments: str) -> Result:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    yield call
    for handler in list(logging.getLogger().handlers):
        if isinstance(handler, logging.FileHandler):  # Hydra leaves its log file open
            handler.close()
            logging.getLogger().removeHandler(handler)


def run_process(arguments: list[str], folder: Path, cache: Path) -> Result:
    """What `dspark ARGUMENTS` does in a process of its own."""
    command = [sys.executable, "-m", "dspark", *arguments]
    environment = {**os.environ, "DSPARK_CACHE": str(cache)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def read_json(path: Path) -> dict[str, Any]:
    """A parsed JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The parsed lines of a JSON lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
