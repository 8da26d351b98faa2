"""The drafter that comes with the package: its word on the command line, and its folder."""

from __future__ import annotations

from pathlib import Path

SMOLLM2_DSPARK = "smollm2_dspark"
"""DSpark for SmolLM2-135M-Instruct, the default target; its folder holds a card that says how it was made."""


def local_source(source: str) -> str:
    """``source``, or the folder that it stands for if it is the word for the drafter of the package.

    Raises:
        ValueError: the package was installed without it.
    """
    if source != SMOLLM2_DSPARK:
        return source
    folder = Path(__file__).parent / "weights" / SMOLLM2_DSPARK
    if not folder.is_dir():
        raise ValueError(f"the drafter {source!r} is missing from this installation: install dspark again")
    return str(folder)
