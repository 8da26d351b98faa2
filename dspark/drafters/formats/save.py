"""Writing a drafter: in DeepSpec's layout, or in that of speculators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from dspark.drafters.formats import deepspec, eagle3_deepspec, eagle3_speculators, speculators
from dspark.drafters.formats.detect import TARGETS_HEAD
from dspark.drafters.formats.files import stored, write_folder
from dspark.drafters.formats.load import EMBEDDING, HEAD

if TYPE_CHECKING:
    from pathlib import Path

    from dspark.drafters.block_model import BlockBackbone
    from dspark.drafters.eagle3_model import Eagle3Model

Layout = Literal["deepspec", "speculators"]
_WRITERS = {"deepspec": deepspec.write_config, "speculators": speculators.write_config}
_EAGLE3_WRITERS = {"deepspec": eagle3_deepspec.write_config, "speculators": eagle3_speculators.write_config}


def save_drafter_folder(
    model: BlockBackbone | Eagle3Model,
    folder: Path,
    *,
    layout: Layout,
    dtype: torch.dtype = torch.bfloat16,
    with_tables: bool = True,
    with_head: bool = True,
) -> Path:
    """``folder``, which then holds the drafter as ``config.json`` and ``model.safetensors``.

    Args:
        model: the drafter.
        folder: made if missing; a drafter in it is overwritten.
        layout: ``speculators`` can say more: a reduced vocabulary, windows, an anchor that does not predict.
        dtype: of the weights.
        with_tables: store copies of the target's embedding and, without a reduced vocabulary, output
            head, as the formats' own tools do and expect. Without, the folder is as small as what was
            trained, and this project's loader takes the target's.
        with_head: store the output head of a reduced vocabulary. Leave it out where it was not trained:
            this project's loader then takes the target's rows.

    Raises:
        ValueError: the layout cannot say what the drafter is.
    """
    spec = model.spec
    writers = _EAGLE3_WRITERS if spec.kind == "eagle3" else _WRITERS
    config = {**writers[layout](spec), "dtype": str(dtype).removeprefix("torch.")}
    # an EAGLE-3 head may have trained its output head
    tables = {EMBEDDING} if spec.has_reduced_vocab or spec.kind == "eagle3" else {EMBEDDING, HEAD}
    left_out = set() if with_tables else tables
    if spec.has_reduced_vocab and not with_head:
        left_out, config[TARGETS_HEAD] = {*left_out, HEAD}, True
    tensors = {
        name: stored(tensor, dtype) for name, tensor in model.state_dict().items() if name not in left_out
    }
    if model.d2t is not None:
        marked = torch.zeros(spec.vocab_size, dtype=torch.bool)
        marked[model.target_ids(torch.arange(spec.draft_vocab_size, device=model.d2t.device)).cpu()] = True
        tensors["t2d"] = marked
    write_folder(folder, config, tensors)
    return folder
