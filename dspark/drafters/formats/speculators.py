"""Folders of the ``speculators`` library (https://github.com/vllm-project/speculators): DSpark and DFlash.

Feature layer i is ``hidden_states[i]``, the output of decoder layer i - 1: one more than elsewhere. The
draft vocabulary may be smaller than the target's; ``d2t`` then holds offsets, draft id + d2t[draft id]
= the target's id, and ``t2d`` marks the target's tokens that can be drafted. Whether the anchor's slot
predicts is written down (``sample_from_anchor``), by default for DSpark and not for DFlash.
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

VERSION = "0.3.0"
_ARCHITECTURES = {"dspark": "DSparkSpeculator", "dflash": "DFlashSpeculator"}
NAMES: Mapping[str, str] = {}
"""Tensors are called as in our modules."""


def recognises(config: Mapping[str, Any]) -> bool:
    """True for the configuration of a block drafter of this format."""
    return config.get("speculators_model_type") in _ARCHITECTURES


def read_spec(config: Mapping[str, Any], names: Set[str]) -> DraftSpec:
    """The spec that a configuration and the names of the stored tensors describe.

    Raises:
        ValueError: a key is missing, a variant that is not implemented, or sizes that make no drafter.
    """
    kind = config["speculators_model_type"]
    decoder = need(config, "transformer_layer_config")
    fields = decoder_fields(decoder, names)
    _refuse_variants(config, fields["hidden_size"])
    from_anchor = bool(config.get("sample_from_anchor", kind == "dspark"))
    slots = need(config, "block_size")
    windows = layer_windows(decoder)
    is_causal = not config.get("sliding_window_non_causal", False)
    verifier = (config.get("speculators_config") or {}).get("verifier") or {}
    return DraftSpec(
        kind=kind,
        block_size=slots if from_anchor else slots - 1,
        samples_from_anchor=from_anchor,
        feature_layers=tuple(layer - 1 for layer in need(config, "aux_hidden_state_layer_ids")),
        mask_token_id=need(config, "mask_token_id"),
        draft_vocab_size=config.get("draft_vocab_size") or fields["vocab_size"],
        windows=windows,
        window_from_anchor=bool(windows),
        causal=tuple(is_causal and window is not None for window in windows),
        target_name=verifier.get("name_or_path"),
        **fields,
        **markov_fields(config),
    )


def _refuse_variants(config: Mapping[str, Any], hidden_size: int) -> None:
    checks = (
        ("projector_type", config.get("projector_type", "dflash"), ("dflash", "dspark")),
        ("shift_label", bool(config.get("shift_label")), (False,)),
        ("target_hidden_size", config.get("target_hidden_size") or hidden_size, (hidden_size,)),
    )
    for key, got, allowed in checks:
        if got not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise ValueError(f"{key} must be {wanted}, other variants are not implemented, got {got}")


def write_config(spec: DraftSpec) -> dict[str, Any]:
    """The configuration of a drafter in this format.

    Raises:
        ValueError: the format cannot say what the drafter is.
    """
    sliding = tuple(window is not None for window in spec.windows)
    if (any(spec.causal) and spec.causal != sliding) or (spec.has_windows and not spec.window_from_anchor):
        raise ValueError(
            "the speculators format has windows counted from the anchor, and causal blocks in all layers "
            f"with a window or none, got causal {spec.causal} and windows {spec.windows}"
        )
    return {
        "speculators_model_type": spec.kind,
        "speculators_version": VERSION,
        "architectures": [_ARCHITECTURES[spec.kind]],
        "transformer_layer_config": decoder_config(spec),
        "draft_vocab_size": spec.draft_vocab_size,
        "block_size": spec.num_slots,
        "sample_from_anchor": spec.samples_from_anchor,
        "target_hidden_size": None,
        "aux_hidden_state_layer_ids": [layer + 1 for layer in spec.feature_layers],
        "mask_token_id": spec.mask_token_id,
        "sliding_window_non_causal": spec.has_windows and not any(spec.causal),
        **({} if spec.kind == "dflash" else markov_config(spec)),
        "speculators_config": proposal_config(spec),
    }


def proposal_config(spec: DraftSpec) -> dict[str, Any]:
    """The part of the configuration that says how many tokens are proposed, and for which target."""
    method = {
        "proposal_type": "greedy",
        "speculative_tokens": spec.block_size,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    return {
        "algorithm": spec.kind,
        "proposal_methods": [method],
        "default_proposal_method": "greedy",
        "verifier": {"name_or_path": spec.target_name, "architectures": []},
    }
