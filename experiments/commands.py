"""`dspark` commands of an experiment, each in a folder of its own: what has ended there is not run again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dspark.cli.launch import EXIT_INTERRUPTED
from dspark.cli.main import main as dspark

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ASKED = "asked.json"
"""What was run in a folder, and whether it has ended."""


def kept(arguments: Sequence[str], folder: Path) -> Path:
    """``folder``, in which `dspark ARGUMENTS` has ended: before, or now, from where it was stopped.

    Args:
        arguments: of `dspark`, without the folder.
        folder: the command's ``hydra.run.dir``.

    Raises:
        ValueError: the folder holds another run, or the command did not end well.
        KeyboardInterrupt: it was interrupted, and has told how to go on.
    """
    asked, started = folder / ASKED, folder / "provenance.json"
    if asked.is_file():
        earlier = json.loads(asked.read_text(encoding="utf-8"))
        if earlier["arguments"] != list(arguments):
            raise ValueError(f"{folder} holds another run: remove it, or give another --out")
        if earlier["ended"]:
            return folder
    elif started.is_file():
        raise ValueError(f"{folder} holds another run: remove it, or give another --out")
    resume = ["resume=true"] if started.is_file() else []
    folder.mkdir(parents=True, exist_ok=True)
    _write(asked, arguments, ended=False)
    code = dspark([*arguments, f"hydra.run.dir={folder}", *resume])
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if code != 0:
        if not started.is_file():  # refused before it began: nothing is lost with other settings
            asked.unlink()
        raise ValueError(f"dspark {' '.join(arguments)} did not end well; see above")
    _write(asked, arguments, ended=True)
    return folder


def _write(path: Path, arguments: Sequence[str], *, ended: bool) -> None:
    path.write_text(json.dumps({"arguments": list(arguments), "ended": ended}) + "\n", encoding="utf-8")
