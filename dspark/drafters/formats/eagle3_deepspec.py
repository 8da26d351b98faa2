"""DeepSpec's folders of EAGLE-3 (https://github.com/deepseek-ai/DeepSpec, ``deepspec/modeling/eagle3``).

Feature layers are outputs of decoder layers; queries and keys are normed as in Qwen 3; the whole
vocabulary can be drafted, and the target's embedding and output head are stored as copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.drafters.formats.decoder import decoder_config, decoder_fields, layer_windows, need
from dspark.drafters.spec import DraftSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

ARCHITECTURES = ("Qwen3Eagle3Model", "Eagle3DraftModel")
"""What DeepSpec writes, and what its evaluation reads as well."""

NAMES: Mapping[str, str] = {}
"""Tensors are called as in our modules."""


def recognises(config: Mapping[str, Any]) -> bool:
    """True for the configuration of an EAGLE-3 head of this format."""
    return any(name in ARCHITECTURES for name in config.get("architectures") or ())


def read_spec(config: Mapping[str, Any], names: Set[str]) -> DraftSpec:
    """The spec that a configuration and the names of the stored tensors describe.

    Raises:
        ValueError: a key is missing, or the sizes make no drafter.
    """
    fields = decoder_fields(config, names)
    if layer_windows(config):
        raise ValueError("DeepSpec's drafters have full attention in all layers, got sliding_attention")
    return DraftSpec(
        kind="eagle3",
        block_size=need(config, "ttt_length"),
        feature_layers=tuple(need(config, "target_layer_ids")),
        num_target_layers=need(config, "num_target_layers"),
        draft_vocab_size=fields["vocab_size"],
        target_name=config.get("target_model_name_or_path"),
        **fields,
    )


def write_config(spec: DraftSpec) -> dict[str, Any]:
    """The configuration of a head in this format.

    DeepSpec itself builds norms on queries and keys in any case and takes five feature layers; a head
    without the norms or with other layers is read by this project alone.

    Raises:
        ValueError: the format cannot say what the head is.
    """
    reasons = (
        (spec.has_reduced_vocab, "a reduced draft vocabulary"),
        (spec.norms.any, "other norms than EAGLE-3's own"),
        (spec.num_target_layers is None, "an unknown number of target layers"),
    )
    for holds, what in reasons:
        if holds:
            raise ValueError(f"DeepSpec's format has no place for {what}; save in the speculators layout")
    return {
        "architectures": [ARCHITECTURES[0]],
        **decoder_config(spec),
        "num_target_layers": spec.num_target_layers,
        "target_layer_ids": list(spec.feature_layers),
        "target_model_name_or_path": spec.target_name,
        "ttt_length": spec.block_size,
        "step_loss_decay": 0.8,  # of training; DeepSpec's configuration has it
    }
