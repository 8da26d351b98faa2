"""EAGLE-3 heads of the ``speculators`` library (https://github.com/vllm-project/speculators).

Feature layer i is ``hidden_states[i]``, the output of decoder layer i - 1: one more than elsewhere; where
none are written, they are 2, N / 2 and N - 3 of N target layers. The draft vocabulary may be smaller
than the target's (``d2t``: offsets). Four switches place norms (:class:`~dspark.drafters.eagle3_norms`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.drafters.eagle3_norms import Eagle3Norms
from dspark.drafters.formats.decoder import decoder_config, decoder_fields, layer_windows, need
from dspark.drafters.formats.speculators import VERSION, proposal_config
from dspark.drafters.spec import DraftSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

NAMES: Mapping[str, str] = {"fc_norms.": "fc_norm."}
"""Prefixes of stored tensors, and ours; everything else has the same name."""

_SWITCHES = {
    "norm_before_residual": "before_residual",
    "norm_before_fc": "before_fc",
    "fc_norm": "each_feature",
    "norm_output": "output",
}


def recognises(config: Mapping[str, Any]) -> bool:
    """True for the configuration of an EAGLE-3 head of this format."""
    return config.get("speculators_model_type") == "eagle3"


def read_spec(config: Mapping[str, Any], names: Set[str]) -> DraftSpec:
    """The spec that a configuration and the names of the stored tensors describe.

    Raises:
        ValueError: a key is missing, a variant that is not implemented, or sizes that make no head.
    """
    decoder = need(config, "transformer_layer_config")
    fields = decoder_fields(decoder, names)
    width = fields["hidden_size"]
    if (config.get("target_hidden_size") or width) != width:
        raise ValueError(
            f"target_hidden_size must be the head's own hidden_size, {width}, others are not implemented, "
            f"got {config['target_hidden_size']}"
        )
    if layer_windows(decoder):
        raise ValueError("an EAGLE-3 head must have full attention, got a sliding_attention layer")
    speculation = config.get("speculators_config") or {}
    method = (speculation.get("proposal_methods") or [{}])[0]
    return DraftSpec(
        kind="eagle3",
        block_size=need(method, "speculative_tokens", "speculators_config.proposal_methods"),
        feature_layers=_feature_layers(config),
        num_target_layers=config.get("num_target_layers"),
        draft_vocab_size=config.get("draft_vocab_size") or fields["vocab_size"],
        norms=Eagle3Norms(**{ours: bool(config.get(key)) for key, ours in _SWITCHES.items()}),
        target_name=(speculation.get("verifier") or {}).get("name_or_path"),
        **fields,
    )


def _feature_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    layers = config.get("eagle_aux_hidden_state_layer_ids")
    if layers is None:
        depth = config.get("num_target_layers")
        layers = () if depth is None else (2, depth // 2, depth - 3)
    return tuple(layer - 1 for layer in layers)


def write_config(spec: DraftSpec) -> dict[str, Any]:
    """The configuration of a head in this format."""
    return {
        "speculators_model_type": "eagle3",
        "speculators_version": VERSION,
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": decoder_config(spec),
        "draft_vocab_size": spec.draft_vocab_size,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in spec.feature_layers],
        "embed_requires_grad": False,
        **{key: getattr(spec.norms, ours) for key, ours in _SWITCHES.items()},
        "speculators_config": proposal_config(spec),
    }
