"""From a GGUF file to a folder in Hugging Face format, once a file content.

GGUF weights are dequantized to fp32: what runs afterwards is exactly what the quantized file says,
in a form that every part of the project (and anything that reads Hugging Face folders) can load.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import shutil
import time
from typing import TYPE_CHECKING

from filelock import FileLock

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_DIGEST_LETTERS = 12
_VERSION = 1  # raised when the same file would be converted to something else


def converted_folder(gguf_path: Path, *, cache_dir: Path) -> Path:
    """The folder with the file's weights, config and tokenizer; converted if it is not there yet.

    The folder is named by the file's name and SHA-256, so a changed file is converted anew and the
    same file in another place is not. Any number of processes may ask at once: one converts, the
    others wait. A conversion appears under its final name only when it is complete.

    Args:
        gguf_path: an existing GGUF file of an architecture that transformers can read.
        cache_dir: converted models are kept in ``cache_dir/models``.

    Raises:
        ValueError: the file could not be converted, for a reason the message gives.
    """
    folder = conversion_folder(gguf_path, cache_dir=cache_dir)
    if folder.is_dir():
        return folder
    models = folder.parent
    models.mkdir(parents=True, exist_ok=True)
    with FileLock(models / f"{folder.name}.lock"):
        if not folder.is_dir():  # another process may have been first
            partial = models / f"{folder.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)  # what a killed conversion left
            _convert(gguf_path, partial)
            partial.rename(folder)
    return folder


def conversion_folder(gguf_path: Path, *, cache_dir: Path) -> Path:
    """The folder of :func:`converted_folder`, whether or not it is there."""
    with gguf_path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return cache_dir / "models" / f"{gguf_path.stem}-{digest[:_DIGEST_LETTERS]}-v{_VERSION}"


def _convert(gguf_path: Path, folder: Path) -> None:
    """Write the model and the tokenizer of ``gguf_path`` to ``folder``."""
    _LOG.info("converting %s to a Hugging Face folder (once)", gguf_path.name)
    began_s = time.monotonic()
    # The dequantizer draws its progress bar on stderr whatever the verbosity is.
    with contextlib.redirect_stderr(io.StringIO()) as chatter:
        try:
            _save_dequantized(gguf_path, folder)
        except Exception as error:  # the readers raise anything, bare Exception included
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ValueError(
                f"cannot convert the GGUF file {gguf_path}: {reason}; use a Hugging Face folder of this model"
            ) from error
    _LOG.debug("while converting: %s", chatter.getvalue())
    _LOG.info("converted %s in %.1f s", gguf_path.name, time.monotonic() - began_s)


def _save_dequantized(gguf_path: Path, folder: Path) -> None:
    """Write the fp32 model under a config that no longer says "quantized", and the tokenizer."""
    import torch  # heavy imports, needed once a model's life
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, file = str(gguf_path.parent), gguf_path.name
    loaded = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    fields = loaded.config.to_dict()
    fields.pop("quantization_config", None)  # saving is refused while the config has it
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(fields), dtype=torch.float32)
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = loaded.generation_config
    plain.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
    tokenizer.clean_up_tokenization_spaces = False  # a space before a full stop is text
    for role in ("bos", "eos", "pad"):  # some versions of the reader take these from another tokenizer
        token_id = fields.get(f"{role}_token_id")
        if isinstance(token_id, int):
            setattr(tokenizer, f"{role}_token", tokenizer.convert_ids_to_tokens(token_id))
    tokenizer.save_pretrained(folder)
