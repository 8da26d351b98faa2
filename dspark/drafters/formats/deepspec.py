"""DeepSpec's folders of DSpark and DFlash, which are one class there: DFlash is DSpark without heads.

https://github.com/deepseek-ai/DeepSpec, ``deepspec/modeling/dspark``. Feature layers are outputs of
decoder layers, -1 the embedding; every slot predicts, the anchor's included, so ``block_size`` slots
give as many drafts. The target's embedding and output head are stored as copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.drafters.formats.decoder import (
    decoder_config,
    decoder_fields,
    layer_windows,
    markov_config,
    markov_fields,
    need,
)
from dspark.drafters.spec import DraftSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

ARCHITECTURE = "Qwen3DSparkModel"
NAMES: Mapping[str, str] = {}
"""Tensors are called as in our modules."""


def recognises(config: Mapping[str, Any]) -> bool:
    """True for the configuration of a block drafter of this format."""
    others = {"speculators_model_type", "dflash_config"} & set(config)
    return ARCHITECTURE in (config.get("architectures") or ()) and not others


def read_spec(config: Mapping[str, Any], names: Set[str]) -> DraftSpec:
    """The spec that a configuration and the names of the stored tensors describe.

    Raises:
        ValueError: a key is missing, or the sizes make no drafter.
    """
    fields = decoder_fields(config, names)
    if layer_windows(config):
        raise ValueError("DeepSpec's drafters have full attention in all layers, got sliding_attention")
    heads = markov_fields(config)
    return DraftSpec(
        kind="dspark" if heads["markov_rank"] or heads["confidence_head"] else "dflash",
        block_size=need(config, "block_size"),
        feature_layers=tuple(need(config, "target_layer_ids")),
        num_target_layers=need(config, "num_target_layers"),
        mask_token_id=need(config, "mask_token_id"),
        draft_vocab_size=fields["vocab_size"],
        target_name=config.get("target_model_name_or_path"),
        **fields,
        **heads,
    )


def write_config(spec: DraftSpec) -> dict[str, Any]:
    """The configuration of a drafter in this format.

    DeepSpec itself builds norms on queries and keys in any case; a drafter without them is written
    as model type ``llama`` and is read by this project alone.

    Raises:
        ValueError: the format cannot say what the drafter is.
    """
    reasons = (
        (spec.has_reduced_vocab, "a reduced draft vocabulary"),
        (not spec.samples_from_anchor, "blocks whose anchor slot does not predict"),
        (not spec.sees_all, "layers with windows or causal blocks"),
        (spec.num_target_layers is None, "an unknown number of target layers"),
    )
    for holds, what in reasons:
        if holds:
            raise ValueError(f"DeepSpec's format has no place for {what}; save in the speculators layout")
    return {
        "architectures": [ARCHITECTURE],
        **decoder_config(spec),
        "block_size": spec.block_size,
        "mask_token_id": spec.mask_token_id,
        "num_target_layers": spec.num_target_layers,
        "target_layer_ids": list(spec.feature_layers),
        "target_model_name_or_path": spec.target_name,
        "num_anchors": 512,  # of training; DeepSpec's constructor asks for it
        **markov_config(spec),
    }
