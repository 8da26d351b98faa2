"""EAGLE-3 heads in the layout of the authors' own code, which SpecForge writes and SGLang reads.

https://github.com/SafeAILab/EAGLE, https://github.com/sgl-project/SpecForge. The layer is called
``midlayer``; the draft vocabulary is mostly smaller than the target's (``d2t``: offsets); layers are of
the Llama kind. ``eagle_config`` may name feature layers, as outputs of decoder layers; where it does
not, they are the inputs of layers 2, N / 2 and N - 3 of N target layers, so the outputs before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.drafters.eagle3_norms import Eagle3Norms
from dspark.drafters.formats.decoder import decoder_fields, layer_windows
from dspark.drafters.spec import DraftSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

NAMES: Mapping[str, str] = {"midlayer.": "layers.0."}
"""Prefixes of stored tensors, and ours; everything else has the same name."""

_ARCHITECTURE = "LlamaForCausalLMEagle3"
_TRAINED_STEPS = 7
"""Steps of training-time test in the paper's code; the layout has no key for it."""


def recognises(config: Mapping[str, Any]) -> bool:
    """True for the configuration of an EAGLE-3 head of this layout."""
    return _ARCHITECTURE in (config.get("architectures") or ())


def read_spec(config: Mapping[str, Any], names: Set[str]) -> DraftSpec:
    """The spec that a configuration and the names of the stored tensors describe.

    Raises:
        ValueError: a key is missing, a variant that is not implemented, or sizes that make no head.
    """
    fields = decoder_fields(config, names)
    _refuse_variants(config, fields["hidden_size"])
    return DraftSpec(
        kind="eagle3",
        block_size=_TRAINED_STEPS,
        feature_layers=_feature_layers(config),
        num_target_layers=config.get("num_target_layers"),
        draft_vocab_size=config.get("draft_vocab_size") or fields["vocab_size"],
        norms=Eagle3Norms(each_feature=bool(config.get("fc_norm")), output=bool(config.get("norm_output"))),
        **fields,
    )


def _feature_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    layers = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if layers is not None:
        return tuple(layers)
    depth = config.get("num_target_layers")
    return () if depth is None else (1, depth // 2 - 1, depth - 4)


def _refuse_variants(config: Mapping[str, Any], hidden_size: int) -> None:
    checks = (
        ("target_hidden_size", config.get("target_hidden_size") or hidden_size, hidden_size),
        ("use_aux_hidden_state", (config.get("eagle_config") or {}).get("use_aux_hidden_state", True), True),
        ("bias", bool(config.get("bias")), False),
        ("mlp_bias", bool(config.get("mlp_bias")), False),
        ("a sliding window", bool(layer_windows(config)), False),
    )
    for key, got, wanted in checks:
        if got != wanted:
            raise ValueError(f"{key} must be {wanted}, other variants are not implemented, got {got}")
