"""Hydra, initialised on the project's YAML files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hydra
import pytest

from dspark.config.paths import config_dir

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hydra_ready() -> Iterator[None]:
    """``hydra.compose`` works while the test runs."""
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        yield
