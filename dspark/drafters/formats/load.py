"""From a drafter's folder to its module, with the target's tables in place."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from dspark.drafters.block_model import BlockBackbone
from dspark.drafters.eagle3_model import Eagle3Model
from dspark.drafters.formats.detect import DrafterFolder, describe
from dspark.drafters.formats.files import read_tensors
from dspark.drafters.formats.target_facts import TargetFacts, check_target, target_tables

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from torch import Tensor

    from dspark.models.target import HFTarget

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
_NOT_OURS = {"t2d", "verifier_lm_head.weight", "verifier_norm.weight"}
_SAME_TABLE = 0.5
"""Two unrelated tables of equal size differ by √2 of their norm, a table and its 4-bit copy by about 0.1."""

_log = logging.getLogger(__name__)


def load_drafter_folder(path: Path, target: HFTarget) -> BlockBackbone | Eagle3Model:
    """The drafter in a folder, on the target's device and in its dtype.

    Raises:
        ValueError: see :func:`~dspark.drafters.formats.detect.describe`; another target; tensors that
            are missing, unknown, of another shape or not finite; a map that is none.
    """
    facts = TargetFacts.of(target)
    folder = describe(path, facts.num_layers)
    spec = folder.spec
    check_target(spec, facts)
    embedding, head = target_tables(target)
    with torch.device("meta"):
        model = Eagle3Model(spec) if spec.kind == "eagle3" else BlockBackbone(spec)
    tables = {EMBEDDING} if spec.has_reduced_vocab else {EMBEDDING, HEAD}
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    unstored = {HEAD} if folder.has_targets_head else set()
    identity = set() if spec.has_reduced_vocab else {"d2t"}
    _check_names(folder, set(shapes) - tables - unstored, {*shapes, *_NOT_OURS, *identity})
    _check_identity(folder, identity & set(folder.tensors))
    tensors = _read(folder, shapes)
    if spec.has_reduced_vocab:
        ids = _check_vocabulary(folder, tensors)
        if folder.has_targets_head:
            tensors.setdefault(HEAD, head[ids.to(head.device)])
    trained = {HEAD} if spec.kind == "eagle3" else set()  # may be unlike the target's
    own = {
        name: _shared_or_own(name, tensors.pop(name, None), ours, is_strict=name not in trained)
        for name, ours in ((EMBEDDING, embedding), (HEAD, head))
        if name in tables
    }
    model.load_state_dict(
        {
            name: tensor.to(target.device, target.dtype if tensor.is_floating_point() else None)
            for name, tensor in tensors.items()
        },
        strict=False,
        assign=True,
    )
    model.share(
        own[EMBEDDING].to(target.device, target.dtype),
        own[HEAD].to(target.device, target.dtype) if HEAD in own else None,
    )
    return model.eval().requires_grad_(False)


def _check_names(folder: DrafterFolder, needed: Collection[str], known: Collection[str]) -> None:
    missing, unknown = sorted(set(needed) - set(folder.tensors)), sorted(set(folder.tensors) - set(known))
    for what, names in (("lacks", missing), ("holds unknown", unknown)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ValueError(
                f"drafter folder {str(folder.path)!r} {what} tensors {', '.join(names[:3])}{more}; "
                "its weights do not go with its config.json"
            )


def _read(folder: DrafterFolder, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The folder's tensors by our names, each looked at."""
    wanted = {ours: theirs for ours, theirs in folder.tensors.items() if ours in shapes or ours == "t2d"}
    stored = read_tensors(folder.files, set(wanted.values()))
    tensors = {ours: stored[theirs] for ours, theirs in wanted.items()}
    for name, tensor in tensors.items():
        shape = shapes.get(name, (folder.spec.vocab_size,))
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"drafter tensor {name} must have the shape {list(shape)} by its config.json, got "
                f"{list(tensor.shape)}; its weights do not go with it"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
            raise ValueError(
                f"drafter tensor {name} must be finite, got NaN or infinity, as in a table that was never "
                "filled in; save the drafter again"
            )
    return tensors


def _check_identity(folder: DrafterFolder, names: Collection[str]) -> None:
    """Raises for a map of a whole vocabulary, which some trainers store, that is not the identity."""
    for name in names:
        stored = folder.tensors[name]
        if bool(read_tensors(folder.files, {stored})[stored].any()):
            raise ValueError(
                f"{name} maps {folder.spec.vocab_size} draft ids, the whole vocabulary, and must be all "
                "zeros, got others: its config.json and weights do not go together"
            )


def _check_vocabulary(folder: DrafterFolder, tensors: dict[str, Tensor]) -> Tensor:
    """The target's ids of the drafter's tokens, int [W]: each its own, and the ones that ``t2d`` marks."""
    offsets = tensors["d2t"] = tensors["d2t"].long()
    ids = torch.arange(offsets.shape[0]) + offsets
    vocab_size = folder.spec.vocab_size
    different = ids.unique().numel()
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size or different < ids.numel():
        raise ValueError(
            f"d2t must map draft ids to different ids of the target in [0, {vocab_size - 1}] by offsets, "
            f"got ids from {int(ids.min())} to {int(ids.max())}, {different} of {ids.numel()} different"
        )
    marked = tensors.pop("t2d", None)
    if marked is not None and not torch.equal(marked.bool().nonzero().squeeze(1), ids.sort().values):
        raise ValueError("t2d must mark the tokens that d2t maps to, got others; save the drafter again")
    return ids


def _shared_or_own(name: str, stored: Tensor | None, ours: Tensor, *, is_strict: bool) -> Tensor:
    """The target's table where the drafter has none or a copy of it, else the drafter's own."""
    if stored is None:
        return ours
    theirs = ours.cpu()
    if torch.equal(stored, theirs.to(stored.dtype)):
        return ours
    if not is_strict:
        return stored
    wide, reference = stored.float(), theirs.float()
    difference = float((wide - reference).norm() / reference.norm())
    if difference > _SAME_TABLE:
        raise ValueError(
            f"the drafter's {name} must be the target's, got one that differs by {difference:.2f} of its "
            "norm; use a drafter that was trained for this target"
        )
    _log.warning(
        "the drafter's %s differs from the target's by %.3f of its norm, as quantized copies do; it is kept",
        name,
        difference,
    )
    return stored
