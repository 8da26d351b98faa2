"""What a result depends on, as one word: the sources, the settings, and whether it is shortened."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from experiments.reproduce.experiment import REPO, Context, Experiment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NO_SOURCE = (".md", ".png", ".svg", ".pyc")


def result_key(experiment: Experiment, context: Context) -> str:
    """Equal where nothing changed that could change the result.

    That is any file of the package, of its configs, and of the experiment's folder, pages and pictures
    excepted. A change of a comment counts too: to know better, one would have to run it.
    """
    digest = hashlib.sha256()
    for folder in (REPO / "dspark", REPO / "configs", REPO / "experiments" / experiment.name):
        for path in _sources(folder):
            digest.update(path.relative_to(REPO).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    asked = {"quick": context.quick, "settings": dict(context.settings)}
    digest.update(json.dumps(asked, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in _NO_SOURCE and "__pycache__" not in path.parts:
            yield path
