"""The default model with its drafter, as words of a command; tiny stand-ins where a run is shortened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.reproduce import Context, Need, Setting

if TYPE_CHECKING:
    from pathlib import Path

DRAFTER = Setting(
    name="drafter",
    what="block drafter of SmolLM2-135M-Instruct with a confidence head: a word, folder or hub id",
    default="smollm2_dspark",
)
BLOCK = 7
"""Drafts of a block of that drafter."""
RECORDINGS = "recordings"
"""A folder beside the experiments' own."""


def missing(context: Context) -> str | None:
    """Why target or drafter cannot be had, in a line, or None; nothing is loaded or fetched."""
    from dspark.drafters.shipped import local_source
    from dspark.models.sources import SMOLLM2, check_source

    if context.quick:  # which has tiny ones
        return None
    for what, source in (("the target", SMOLLM2), ("the drafter", _drafter(context))):
        try:
            check_source(local_source(source))
        except ValueError as error:
            return f"{what}: {error}" + "; or give drafter=FOLDER" * (source != SMOLLM2)
    return None


MODELS = Need(what="the default model and its drafter", missing=missing)


def models(context: Context) -> list[str]:
    """Settings of any `dspark` command that runs a model; they go before its own."""
    source = str(_stand_in(context)) if context.quick else _drafter(context)
    return ["debug=smoke" if context.quick else "tracker=none", "drafter=block", f"drafter.source={source}"]


def drafter_files(context: Context) -> list[Path]:
    """The drafter's files, sorted; from the hub if they are there."""
    from dspark.drafters.shipped import local_source
    from dspark.models.sources import resolve_source

    folder = _stand_in(context) if context.quick else resolve_source(local_source(_drafter(context)))
    return sorted(path for path in folder.iterdir() if path.is_file())


def _drafter(context: Context) -> str:
    source = context.settings[DRAFTER.name]
    assert source is not None, "it has a default"
    return source


def _stand_in(context: Context) -> Path:
    """The folder of a tiny drafter for the tiny target that `debug=smoke` takes; all experiments share it."""
    from experiments.drafting.stand_in import make_stand_in

    return make_stand_in("dspark", context.folder.parent / RECORDINGS / "stand_ins")
