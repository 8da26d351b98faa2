"""Shortened runs of experiments, each made once for all tests that look at it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from experiments.reproduce import Context, registry
from experiments.reproduce.result import Result
from tests.experiments.stand_ins import run

Shortened = Callable[[str], tuple[Result, Path]]


@pytest.fixture(scope="session")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> Shortened:
    """``shortened("e02_more_work")`` is the result of its shortened run, and the folder."""
    base = tmp_path_factory.mktemp("shortened")

    @cache
    def made(name: str) -> tuple[Result, Path]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(base)
            patch.setenv("DSPARK_CACHE", str(base / "cache"))
            (result,) = run(base / "out", registry.load(name), quick=True)
        for handler in list(logging.getLogger().handlers):
            if isinstance(handler, logging.FileHandler):  # Hydra leaves its log file open
                handler.close()
                logging.getLogger().removeHandler(handler)
        assert result.error is None, result.error
        return result, base / "out" / name

    return made


@pytest.fixture
def context(tmp_path: Path) -> Callable[..., Context]:
    """``context("e02_more_work", drafter="x")``: what a run of it would be given, not shortened."""

    def made(name: str, *, quick: bool = False, **settings: str) -> Context:
        known = {setting.name: setting.default for setting in registry.load(name).settings}
        assert settings.keys() <= known.keys()
        return Context(
            folder=tmp_path, console=Console(quiet=True), quick=quick, settings={**known, **settings}
        )

    return made
