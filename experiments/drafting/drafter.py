"""The drafters that an experiment measures: settings, what they need, and how commands are told of them.

A shortened run looks at no setting: it measures tiny stand-ins, which it makes in its own folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.drafters.cells import Contender
from experiments.reproduce import Need, Setting
from experiments.shipped.models import BLOCK, DRAFTER, MODELS

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.reproduce import Context

DEPTH = BLOCK
"""Of drafts, as in the paper's offline setting."""

DFLASH = Setting(name="dflash", what="folder of a DFlash drafter that was trained like the other one")
EAGLE3 = Setting(name="eagle3", what="folder of an EAGLE-3 drafter that was trained like the other one")

TEMPERATURE = Setting(
    name="temperature", what="of sampled text, 0 for greedy decoding; the paper's is 1", default="1"
)

_RIVALS = {DFLASH.name: ("DFlash", "block", "dflash"), EAGLE3.name: ("EAGLE-3", "eagle3", "eagle3")}
"""By setting: name in tables, option of the group ``drafter``, stand-in."""

QUICK_TOKENS = 12


def size(context: Context, max_new_tokens: int) -> list[str]:
    """Settings of a `dspark` command: how long outputs are; in a shortened run short, of a tiny target."""
    if context.quick:
        return ["debug=smoke", f"sampling.max_new_tokens={QUICK_TOKENS}"]
    return ["tracker=none", f"sampling.max_new_tokens={max_new_tokens}"]


def dspark_drafter(context: Context) -> Contender:
    """The DSpark drafter of the settings, or its stand-in."""
    return Contender(name="DSpark", kind="block", source=_source(context, DRAFTER, "dspark"))


def rivals(context: Context, *settings: Setting) -> list[Contender]:
    """Of DFlash and EAGLE-3 those that are set, in the order given; in a shortened run all."""
    found = []
    for setting in settings:
        if context.quick or context.settings[setting.name] is not None:
            name, kind, stand_in = _RIVALS[setting.name]
            found.append(Contender(name=name, kind=kind, source=_source(context, setting, stand_in)))
    return found


def why_absent(setting: Setting) -> str:
    """Why there is no number of a rival."""
    return f"no {_RIVALS[setting.name][0]} drafter: train one and give {setting.name}=DIR"


def drafter_folder(context: Context) -> Path:
    """The folder of the DSpark drafter, or of its stand-in.

    Raises:
        ValueError: it cannot be had.
    """
    from dspark.drafters.shipped import local_source
    from dspark.models.sources import resolve_source

    source = dspark_drafter(context).source
    assert source is not None, "the setting has a default"
    return resolve_source(local_source(source))


def _source(context: Context, setting: Setting, stand_in: str) -> str:
    if context.quick:
        from experiments.drafting.stand_in import make_stand_in

        return str(make_stand_in(stand_in, context.folder / "stand_ins"))
    source = context.settings[setting.name]
    assert source is not None, f"{setting.name} is not set"
    return source


def _unfit(context: Context) -> str | None:
    if context.quick:
        return None
    from dspark.drafters.formats import describe

    try:
        spec = describe(drafter_folder(context)).spec
    except ValueError as error:
        return f"the drafter: {error}; or give {DRAFTER.name}=FOLDER"
    if spec.kind == "dspark" and spec.confidence_head and spec.block_size >= DEPTH:
        return None
    return (
        f"the drafter must be of kind dspark with a confidence head and blocks of {DEPTH} or more, got kind "
        f"{spec.kind}, {'a' if spec.confidence_head else 'no'} confidence head and blocks of "
        f"{spec.block_size}: give {DRAFTER.name}=FOLDER"
    )


NEEDS = (MODELS, Need(what=f"its confidence head and blocks of {DEPTH}", missing=_unfit))
