"""What a result depends on, as one word: the sources, the settings, and whether it is shortened."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.reproduce.experiment import REPO, Context, Experiment

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_SOURCE = (".md", ".png", ".svg", ".pyc")
_SHARED = ("drafters", "drafting", "reproduce", "shipped")
"""Folders of `experiments/` that experiments import from."""
_READ_WHOLE = 64 << 20
"""Bytes of a file; a larger one, such as a target's weights, counts by its size and time."""


def result_key(experiment: Experiment, context: Context) -> str:
    """Equal where nothing changed that could change the result.

    That is any file of the package, of its configs, of the experiment's folder and of those that experiments
    share, pages and pictures excepted, and what lies in a folder or file that a setting names: a drafter that
    was trained further is another one. A change of a comment counts too: to know better, one would have to
    run it.
    """
    digest = hashlib.sha256()
    shared = (REPO / "experiments" / name for name in _SHARED)
    for folder in (REPO / "dspark", REPO / "configs", REPO / "experiments" / experiment.name, *shared):
        for path in _files(folder):
            if path.suffix not in _NO_SOURCE:
                digest.update(path.relative_to(REPO).as_posix().encode() + b"\0" + _content(path))
    for name, value in sorted(context.settings.items()):
        if value:
            given = Path(value).expanduser()
            for path in _files(given):
                digest.update(f"{name}/{path.relative_to(given)}".encode() + b"\0" + _content(path))
    asked = {"quick": context.quick, "settings": dict(context.settings)}
    digest.update(json.dumps(asked, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _files(root: Path) -> Iterator[Path]:
    """The files below a folder, in order; a file is its only one."""
    for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _content(path: Path) -> bytes:
    found = path.stat()
    if found.st_size > _READ_WHOLE:
        return f"{found.st_size} {found.st_mtime_ns}".encode()
    return hashlib.sha256(path.read_bytes()).digest()
