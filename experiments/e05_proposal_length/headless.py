"""A DSpark drafter without what its sequential head adds: the same files with one matrix of zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.drafters.formats import describe
from dspark.drafters.formats.files import read_config, read_tensors, write_folder

if TYPE_CHECKING:
    from pathlib import Path

LAST = "markov_head.markov_w2.weight"
"""Whatever kind of head it is, its last product is with this matrix, and is added to the logits."""


def without_head(drafter: Path, out: Path) -> Path:
    """``out``, which then holds the drafter with logits of its backbone alone.

    Its confidences read the token before as they did.

    Args:
        drafter: folder of a drafter.
        out: made if missing; a drafter in it is overwritten.

    Raises:
        ValueError: no drafter, or one without a sequential head.
    """
    folder = describe(drafter)
    if LAST not in folder.tensors:
        raise ValueError(
            f"a drafter without a sequential head has none to lose, got kind {folder.spec.kind} in "
            f"{drafter}: give a DSpark drafter"
        )
    tensors = read_tensors(folder.files, set(folder.files))
    stored = folder.tensors[LAST]
    tensors[stored] = torch.zeros_like(tensors[stored])
    write_folder(out, read_config(drafter), tensors)
    return out
