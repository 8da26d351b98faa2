"""The part of a drafter's configuration that all formats share: a decoder's, in Hugging Face's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.drafters.spec import ROPE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dspark.drafters.spec import DraftSpec

Q_NORM = "layers.0.self_attn.q_norm.weight"
"""A tensor that says whether queries and keys are normed: model types alone do not."""


def need(config: Mapping[str, Any], key: str, where: str = "config.json") -> Any:
    """The value of a key.

    Raises:
        ValueError: it is missing or null.
    """
    if config.get(key) is None:
        raise ValueError(
            f"{where} of the drafter lacks {key!r}, which this kind of drafter needs; complete it"
        )
    return config[key]


def decoder_fields(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Fields of a :class:`DraftSpec` that a decoder's configuration gives.

    Args:
        config: in the words of transformers 4 or 5.
        names: of the stored tensors.

    Raises:
        ValueError: a key is missing, or the activation is another than SiLU.
    """
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ValueError(
            f"a drafter's hidden_act must be silu, others are not implemented, got {activation!r}"
        )
    heads, hidden = need(config, "num_attention_heads"), need(config, "hidden_size")
    return {
        "num_layers": need(config, "num_hidden_layers"),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or hidden // heads,
        "intermediate_size": need(config, "intermediate_size"),
        "vocab_size": need(config, "vocab_size"),
        "rms_norm_eps": config.get("rms_norm_eps", 1e-6),
        "rope": rope_of(config),
        "max_context": need(config, "max_position_embeddings"),
        "attention_bias": bool(config.get("attention_bias", False)),
        "qk_norm": Q_NORM in set(names),
    }


def rope_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """``rope_theta``, ``rope_type`` and what else a scaling needs, from either generation's keys.

    Raises:
        ValueError: no theta, or a scaling that depends on a row's length.
    """
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = {key: value for key, value in scaling.items() if key != "type" and value is not None}
    rope.setdefault("rope_type", scaling.get("type") or "default")
    rope.setdefault("rope_theta", config.get("rope_theta", 10_000.0))
    if rope["rope_type"] not in ROPE_TYPES:
        raise ValueError(
            f"a drafter's rope_type must be one of {', '.join(ROPE_TYPES)}, got {rope['rope_type']!r}; "
            "use another checkpoint"
        )
    return rope


def layer_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Each layer's sliding window, empty where all see everything.

    Raises:
        ValueError: sliding layers without a window, or a kind of layer that is not implemented.
    """
    kinds = config.get("layer_types") or []
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown:
        raise ValueError(f"layer_types must be full_attention or sliding_attention, got {', '.join(unknown)}")
    if "sliding_attention" not in kinds:
        return ()
    window = need(config, "sliding_window")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def decoder_config(spec: DraftSpec) -> dict[str, Any]:
    """A decoder's configuration with these sizes, in the words of transformers 5.

    The model type is ``qwen3``, or ``llama`` where queries and keys have no norms. Theta is written in
    transformers 4's place as well, where other readers look for it.
    """
    types = [
        "full_attention" if spec.window(i) is None else "sliding_attention" for i in range(spec.num_layers)
    ]
    windows = {window for window in spec.windows if window is not None}
    if len(windows) > 1:
        raise ValueError(f"these formats have one sliding window for all layers, got {sorted(windows)}")
    return {
        "model_type": "qwen3" if spec.qk_norm else "llama",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.rms_norm_eps,
        "attention_bias": spec.attention_bias,
        "attention_dropout": 0.0,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_context,
        "rope_parameters": dict(spec.rope),
        "rope_theta": spec.rope["rope_theta"],
        "tie_word_embeddings": False,
        "layer_types": types,
        "sliding_window": windows.pop() if windows else None,
        "use_sliding_window": bool(spec.has_windows),
    }


def markov_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the heads, whose keys all formats share.

    Raises:
        ValueError: heads that contradict each other, or that are asked for and not described.
    """
    rank = config.get("markov_rank") or 0
    confidence = bool(config.get("enable_confidence_head", False))
    return {
        "markov_rank": rank,
        "markov_head_type": str(need(config, "markov_head_type")).lower() if rank else "vanilla",
        "confidence_head": confidence,
        "confidence_with_markov": confidence and bool(need(config, "confidence_head_with_markov")),
    }


def markov_config(spec: DraftSpec) -> dict[str, Any]:
    """The heads' keys; those of a head that is off are left out, as DeepSpec does."""
    keys: dict[str, Any] = {"markov_rank": spec.markov_rank, "enable_confidence_head": spec.confidence_head}
    if spec.markov_rank:
        keys["markov_head_type"] = spec.markov_head_type
    if spec.confidence_head:
        keys["confidence_head_with_markov"] = spec.confidence_with_markov
    return keys
