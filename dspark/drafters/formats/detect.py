"""Which format a drafter's folder has, and the spec it describes; reads headers, no weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from dspark.drafters.formats import (
    deepspec,
    eagle3_classic,
    eagle3_deepspec,
    eagle3_speculators,
    speculators,
    zlab,
)
from dspark.drafters.formats.files import read_config, tensor_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Set
    from pathlib import Path

    from dspark.drafters.spec import DraftSpec


class Format(Protocol):
    """What a module of a format has."""

    NAMES: Mapping[str, str]  # beginnings of stored tensors' names -> of ours

    def recognises(self, config: Mapping[str, Any]) -> bool:
        """True for a configuration of this format."""
        ...

    def read_spec(self, config: Mapping[str, Any], names: Set[str]) -> DraftSpec:
        """The spec by a configuration and the stored tensors' names, as ours."""
        ...


READERS: tuple[Format, ...] = (
    speculators,
    eagle3_speculators,
    zlab,
    deepspec,
    eagle3_deepspec,
    eagle3_classic,
)


TARGETS_HEAD = "lm_head_of_verifier"
"""Key of a configuration, this project's own: the reduced output head is not stored, nor was it trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterFolder:
    """What is in a drafter's folder."""

    path: Path
    spec: DraftSpec
    tensors: Mapping[str, str]  # our names -> stored names
    files: Mapping[str, Path]  # stored names -> files
    has_targets_head: bool = False  # its reduced output head is not stored: it is rows of the target's


def describe(folder: Path, num_target_layers: int | None = None) -> DrafterFolder:
    """What the folder holds, by ``config.json`` and the headers of its weights.

    Args:
        folder: of the drafter.
        num_target_layers: of the target, if known: taken where the file does not say how deep its target
            is, as EAGLE-3 heads do that count their feature layers from it.

    Raises:
        ValueError: no drafter, an architecture that is not implemented, no safetensors, or a
            configuration that makes no drafter.
    """
    config = read_config(folder)
    if num_target_layers is not None:
        said = config.get("num_target_layers")
        config = {**config, "num_target_layers": num_target_layers if said is None else said}
    reader = next((reader for reader in READERS if reader.recognises(config)), None)
    if reader is None:
        raise ValueError(
            f"{folder / 'config.json'} describes no drafter that is implemented: {_what(config)}"
        )
    files = tensor_files(folder)
    tensors = {_renamed(name, reader.NAMES): name for name in files}
    try:
        spec = reader.read_spec(config, set(tensors))
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return DrafterFolder(
        path=folder,
        spec=spec,
        tensors=tensors,
        files=files,
        has_targets_head=bool(config.get(TARGETS_HEAD, False)),
    )


def _renamed(name: str, table: Mapping[str, str]) -> str:
    for theirs, ours in table.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


def _what(config: Mapping[str, Any]) -> str:
    kind = config.get("speculators_model_type")
    if kind is not None:
        return f"speculators_model_type is {kind!r}; use a DSpark, DFlash or EAGLE-3 drafter"
    architectures = ", ".join(config.get("architectures") or ()) or "none"
    return f"architectures: {architectures}; use a drafter of DeepSpec, speculators, z-lab or EAGLE"
