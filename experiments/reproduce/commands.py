"""`dspark` commands as part of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.cli.exit_codes import EXIT_INTERRUPTED
from dspark.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def dspark(arguments: Sequence[str], folder: Path) -> Path:
    """``folder`` with the results of `dspark ARGUMENTS`; a run that was stopped there goes on.

    Args:
        arguments: of a command that can resume, without folder and resume.
        folder: of the run.

    Raises:
        RuntimeError: it did not end well; its message went to stderr.
        KeyboardInterrupt: it was interrupted.
    """
    resume = ["resume=true"] if (folder / "provenance.json").is_file() else []
    code = main([*arguments, f"hydra.run.dir={folder}", *resume])
    if code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    if code != 0:
        raise RuntimeError(f"dspark {' '.join(arguments)} ended with {code}; see its message above")
    return folder
