"""From settings and a target to a drafter that can be trained, and what it starts as."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dspark.drafters.block_model import BlockBackbone
from dspark.drafters.eagle3_model import Eagle3Model
from dspark.drafters.formats import load_drafter_folder
from dspark.drafters.spec import ROPE_TYPES, DraftSpec
from dspark.models.base import EMBEDDING
from dspark.training.new_vocabulary import with_vocabulary
from dspark.training.schedule import generator_of
from dspark.training.vocabulary import offsets_of

if TYPE_CHECKING:
    from pathlib import Path

    from dspark.models.target import HFTarget
    from dspark.training.settings import DraftSettings
    from dspark.training.trainee import DraftModule

_STD = 0.02
_OF_PAIRS = tuple(f"self_attn.{part}_proj.weight" for part in "qkv")
"""What reads an EAGLE-3 pair: the token's embedding, and the feature in the right half."""
_NEEDED = ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "rms_norm_eps")


def draft_spec(settings: DraftSettings, config: Any, *, target_name: str) -> DraftSpec:
    """The drafter's architecture; needs no weights, so what cannot be is refused early.

    Args:
        settings: what is asked for.
        config: the target's text config, of transformers.
        target_name: for the checkpoint.

    Raises:
        ValueError: a target whose sizes have other names, a layer that it lacks, or sizes that do not fit.
    """
    missing = [name for name in _NEEDED if getattr(config, name, None) is None]
    if missing:
        raise ValueError(
            f"a {config.model_type} target has no {', '.join(missing)}, which the drafter's layers are sized "
            "by: use a target of the Llama or Qwen kind"
        )
    num_target_layers = config.num_hidden_layers
    layers = settings.feature_layers
    if layers is None:
        layers = spread_layers(settings.num_feature_layers, num_target_layers)
    if num_target_layers - 1 in layers:
        raise ValueError(
            f"draft.feature_layers must lie below the target's last layer, {num_target_layers - 1}, whose "
            f"output the final norm changes, got {list(layers)}"
        )
    if settings.train_head and settings.vocab_size == config.vocab_size:
        raise ValueError(
            "draft.train_head=true needs a reduced vocabulary, because the whole head is the target's, got "
            f"draft.vocab_size {settings.vocab_size}, all of it"
        )
    for layer in settings.initial_layers or ():
        if not 0 <= layer < num_target_layers:
            raise ValueError(
                f"draft.initial_layers must be layers of the target, 0 to {num_target_layers - 1}, "
                f"got {layer}"
            )
    return DraftSpec(
        kind=settings.kind,
        block_size=settings.block_size,
        feature_layers=layers,
        num_layers=settings.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        intermediate_size=settings.intermediate_size or config.intermediate_size,
        vocab_size=config.vocab_size,
        draft_vocab_size=settings.vocab_size or config.vocab_size,
        num_target_layers=num_target_layers,
        rms_norm_eps=config.rms_norm_eps,
        rope=_rope(config),
        max_context=config.max_position_embeddings,
        attention_bias=bool(getattr(config, "attention_bias", False)),
        qk_norm=settings.qk_norm,
        mask_token_id=settings.mask_token_id,
        markov_rank=settings.markov_rank,
        markov_head_type=settings.markov_head_type,
        confidence_head=settings.confidence_head,
        confidence_with_markov=settings.confidence_with_markov and settings.confidence_head,
        target_name=target_name,
    )


def spread_layers(num: int, num_target_layers: int) -> tuple[int, ...]:
    """``num`` layers from the second to the third last: round(1 + i (N - 4) / (num - 1)) (z-lab's DFlash).

    A target of few layers gives its last ones below the last, the embedding among them if need be.

    Raises:
        ValueError: more than the target has.
    """
    if num_target_layers >= num + 3:
        if num == 1:
            return (num_target_layers - 3,)
        return tuple(round(1 + i * (num_target_layers - 4) / (num - 1)) for i in range(num))
    below = range(EMBEDDING, num_target_layers - 1)
    if num > len(below):
        raise ValueError(
            f"draft.num_feature_layers must be at most {len(below)}, what the target has below its last "
            f"layer, got {num}"
        )
    return tuple(below[-num:])


def new_drafter(
    spec: DraftSpec, settings: DraftSettings, target: HFTarget, vocabulary: Tensor | None, seed: int
) -> DraftModule:
    """A drafter to be trained, in float32 on the target's device.

    Args:
        spec: its architecture.
        settings: what it starts as.
        target: whose tables it uses, and whose layers it may start from.
        vocabulary: int [W], the target's ids of its tokens; None: all.
        seed: of the random weights.

    Raises:
        ValueError: the target's layers do not fit the drafter's.
    """
    module = Eagle3Model(spec) if spec.kind == "eagle3" else BlockBackbone(spec)
    head = target.model.get_output_embeddings().weight
    # float32 like what is trained; a target in float32 is not copied
    embedding = target.model.get_input_embeddings().weight.float()
    module.share(embedding, None if spec.has_reduced_vocab else head.float())
    generator = generator_of(seed, 2)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                _initialise(name, parameter, generator)
        if vocabulary is not None:
            assert module.d2t is not None, "a vocabulary for a spec without one"
            module.d2t.copy_(offsets_of(vocabulary))
            module.lm_head.weight.copy_(head[vocabulary.to(head.device)])
        if settings.initial_layers is not None:
            _start_as(module, target, settings.initial_layers)
    module.lm_head.requires_grad_(settings.train_head)
    return module.to(target.device)


def continued_drafter(
    spec: DraftSpec, settings: DraftSettings, folder: Path, target: HFTarget, vocabulary: Tensor | None
) -> DraftModule:
    """A trained drafter that is to be trained further, in float32.

    Args:
        spec: what it has to be.
        settings: that asked for it.
        folder: where it lies.
        target: whose tables it uses.
        vocabulary: int [W], taken where the drafter's has another size; one of this size stays as it is.

    Raises:
        ValueError: there is no drafter in the folder, or one that is not what the settings ask for.
    """
    module = load_drafter_folder(folder, target)
    head = target.model.get_output_embeddings().weight
    if vocabulary is not None and len(vocabulary) != module.spec.draft_vocab_size:
        module = with_vocabulary(module, vocabulary, head)
    for item in fields(DraftSpec):
        ours, theirs = getattr(spec, item.name), getattr(module.spec, item.name)
        if item.name != "target_name" and theirs not in (None, ours):  # None: the layout does not say
            raise ValueError(
                f"draft.start_from: the drafter in {str(folder)!r} has {item.name} {theirs}, and the "
                f"settings ask for {ours}: change the settings of draft, or leave start_from out"
            )
    ids = module.target_ids(torch.arange(spec.draft_vocab_size, device=target.device))
    has_own_head = not torch.equal(module.lm_head.weight.bfloat16(), head[ids].bfloat16())
    if has_own_head and not (settings.train_head and spec.has_reduced_vocab):
        raise ValueError(
            f"draft.start_from: the drafter in {str(folder)!r} has an output head of its own, which only "
            "draft.train_head=true with a reduced vocabulary keeps"
        )
    module = module.float().train()
    embedding = target.model.get_input_embeddings().weight.float()
    module.share(embedding, None if spec.has_reduced_vocab else head.float())
    for name, parameter in module.named_parameters():
        is_table = name == "embed_tokens.weight" or (name == "lm_head.weight" and not spec.has_reduced_vocab)
        parameter.requires_grad_(not is_table)
    module.lm_head.requires_grad_(settings.train_head)
    return module


def _initialise(name: str, parameter: Tensor, generator: torch.Generator) -> None:
    if name.endswith("bias") or "markov_w2" in name:
        parameter.zero_()  # a sequential head that says nothing yet
    elif parameter.dim() == 1:
        parameter.fill_(1.0)
    elif "markov_w1" in name:
        parameter.normal_(0, parameter.shape[1] ** -0.5, generator=generator)
    else:
        parameter.normal_(0, _STD, generator=generator)


def _start_as(module: DraftModule, target: HFTarget, layers: tuple[int, ...]) -> None:
    """Copy the target's layers into the drafter's, its final norm, and the way features enter them.

    The context's keys and values of the first layer are then the target's own, where the layer's input
    is among the features.
    """
    decoder = target.model.get_decoder()
    width = module.spec.hidden_size
    for ours, number in zip(module.layers, layers, strict=True):
        theirs = dict(decoder.layers[number].named_parameters())
        for name, parameter in ours.named_parameters():
            if name == "hidden_norm.weight":  # of an EAGLE-3 layer; its input_layernorm is the embedding's
                parameter.copy_(theirs["input_layernorm.weight"])
            elif isinstance(module, Eagle3Model) and name == "input_layernorm.weight":
                continue
            elif isinstance(module, Eagle3Model) and name in _OF_PAIRS:
                parameter.zero_()
                parameter[:, width:].copy_(_fitting(theirs, name, parameter[:, width:]))
            else:
                parameter.copy_(_fitting(theirs, name, parameter))
    module.norm.weight.copy_(decoder.norm.weight)
    first = layers[0] - 1
    if first in module.spec.feature_layers:
        place = module.spec.feature_layers.index(first) * width
        module.fc.weight.zero_()
        module.fc.weight[:, place : place + width].copy_(torch.eye(width))
    if isinstance(module, BlockBackbone):
        module.hidden_norm.weight.copy_(decoder.layers[layers[0]].input_layernorm.weight)


def _fitting(theirs: dict[str, nn.Parameter], name: str, ours: Tensor) -> Tensor:
    """The target's tensor of that name.

    Raises:
        ValueError: it has none, or one of another shape.
    """
    found = theirs.get(name)
    if found is None or found.shape != ours.shape:
        shape = None if found is None else list(found.shape)
        raise ValueError(
            f"draft.initial_layers: the drafter's {name} has shape {list(ours.shape)}, and the target's "
            f"layers have {shape}: set draft.qk_norm and draft.intermediate_size as the target has them, or "
            "initial_layers=null"
        )
    return found


def _rope(config: Any) -> dict[str, Any]:
    """The target's rotary frequencies, or plain ones where they are of a kind that drafters do not have."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ROPE_TYPES and "rope_theta" in rope:
        return dict(rope)
    return {"rope_type": "default", "rope_theta": 10_000.0}


def num_trained(module: nn.Module) -> int:
    """Parameters that training changes."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
