"""Reading and writing a drafter's folder: ``config.json`` and safetensors, single or sharded; no pickles."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's ``config.json``.

    Raises:
        ValueError: there is none, or it is not a JSON object.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(
            f"drafter folder {str(folder)!r} has no config.json; give a folder of a trained drafter"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"cannot read {path}: {error}; complete the folder") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(config).__name__}")
    return config


def tensor_files(folder: Path) -> dict[str, Path]:
    """Which file of the folder holds each tensor; only headers are read.

    Raises:
        ValueError: no safetensors, or a shard that is missing or damaged.
    """
    index = folder / INDEX
    if index.is_file():
        written = _weight_map(index)
        lacking = sorted({name for name in written.values() if not (folder / name).is_file()})
        if lacking:
            raise ValueError(
                f"drafter folder {str(folder)!r} lacks {', '.join(lacking)}; complete the folder"
            )
        return {name: folder / file for name, file in written.items()}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        found = f"only {', '.join(pickles)}, which can run code when it is read" if pickles else "no weights"
        raise ValueError(
            f"drafter folder {str(folder)!r} must hold safetensors, got {found}; convert the weights"
        )
    return {name: path for path in files for name in _open(path).keys()}  # noqa: SIM118


def _weight_map(index: Path) -> dict[str, str]:
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"cannot read {index}: {error}; get the file again") from error
    if not isinstance(content, dict) or not isinstance(content.get("weight_map"), dict):
        raise ValueError(f"{index} must hold a weight_map, got none; get the file again")
    return content["weight_map"]


def read_tensors(files: Mapping[str, Path], names: set[str]) -> dict[str, Tensor]:
    """The named tensors, on the host, as they are stored.

    Raises:
        ValueError: a file is damaged.
    """
    opened = {path: _open(path) for path in {files[name] for name in names}}
    try:
        return {name: opened[files[name]].get_tensor(name) for name in sorted(names)}
    except SafetensorError as error:
        raise ValueError(f"cannot read the weights in {files[min(names)].parent}: {error}") from error


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"cannot read {path}: {error}; get the file again") from error


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write ``config.json`` and the weights; each file appears whole or not at all.

    Raises:
        ValueError: the folder holds other weights, which would be read along with these.
    """
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted(
        path.name for path in [*folder.glob("*.safetensors"), *folder.glob(INDEX)] if path.name != WEIGHTS
    )
    if others:
        raise ValueError(
            f"the folder {str(folder)!r} already holds {', '.join(others[:3])}, which would be read along "
            "with the drafter: remove them, or give another folder"
        )
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    partial = folder / f"{WEIGHTS}.partial"
    save_file(weights, partial, metadata={"format": "pt"})
    os.replace(partial, folder / WEIGHTS)
    partial = folder / "config.json.partial"
    partial.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, folder / "config.json")


def stored(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor as it is written: floats in ``dtype``, integers and booleans as they are."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
