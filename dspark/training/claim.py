"""One process at a time writes to a folder."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = ".writing.lock"


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder, made if missing, is this process's to write to while the context lasts; a kill frees it.

    Raises:
        ValueError: another process is writing there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / FILE, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"another process is writing to {folder}: wait until it has ended, or give another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()
