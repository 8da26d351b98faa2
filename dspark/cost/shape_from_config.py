"""A model's shape from its Hugging Face config; no weights are read and no library is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark.cost.feed_forward import Dense, Experts, FeedForward
from dspark.cost.mixers import Attention, LinearAttention, Mixer
from dspark.cost.named_shapes import SHAPES, named_shape
from dspark.cost.shapes import LayerGroup, ModelShape

MODEL_TYPES = (
    *("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen3_5_text"),
    *("gemma", "gemma2", "gemma3_text", "gemma4_unified_text"),
)
"""Values of ``model_type`` that are understood; of a multimodal config, that of its ``text_config``."""

_SLIDING, _LINEAR = "sliding_attention", "linear_attention"


def shape_of(choice: str) -> ModelShape:
    """The shape that a name stands for, or that a local folder's ``config.json`` describes.

    Raises:
        ValueError: neither a known name nor such a folder, or a config that is not understood.
    """
    if choice in SHAPES or not Path(choice).expanduser().is_dir():
        return named_shape(choice)
    return load_shape(Path(choice).expanduser())


def load_shape(folder: Path) -> ModelShape:
    """The shape that the folder's ``config.json`` describes.

    Raises:
        ValueError: it cannot be read, or ``from_config`` refuses it.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; give a folder with a config.json") from error
    except ValueError as error:
        raise ValueError(f"{path} must be a JSON object, got: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must be a JSON object, got {type(config).__name__}")
    try:
        shape = from_config(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return replace(shape, name=folder.resolve().name, source=str(path))


def from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape of the decoder that a Hugging Face config describes.

    Args:
        config: the config as a mapping (``config.json``, or ``to_dict()`` of a config object).

    Raises:
        ValueError: its ``model_type`` is not one of ``MODEL_TYPES``, or a size is missing.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping):
        return from_config(text)
    kind = str(config.get("model_type"))
    if kind not in MODEL_TYPES:
        raise ValueError(f"model_type must be one of {', '.join(MODEL_TYPES)}, got {kind!r}")
    if config.get("num_kv_shared_layers") or config.get("enable_moe_block"):
        raise ValueError("layers that share keys and values, and Gemma's expert blocks, are not modelled")
    tied = config.get("tie_word_embeddings", kind.startswith("gemma"))
    return ModelShape(
        name=kind,
        source="config",
        hidden=_size(config, "hidden_size"),
        vocab=_size(config, "vocab_size"),
        tied_head=bool(tied),
        groups=_groups(config, kind),
    )


def _groups(config: Mapping[str, Any], kind: str) -> tuple[LayerGroup, ...]:
    """Equal layers together, in the order of their first one."""
    counts: dict[tuple[Mixer, FeedForward], int] = {}
    for index, layer_type in enumerate(_layer_types(config, kind)):
        layer = (_mixer(config, kind, layer_type, index), _feed_forward(config, kind, index))
        counts[layer] = counts.get(layer, 0) + 1
    norms = 4 if kind.startswith("gemma") and kind != "gemma" else 2
    return tuple(
        LayerGroup(count=count, mixer=mixer, feed_forward=mlp, num_norms=norms)
        for (mixer, mlp), count in counts.items()
    )


def _layer_types(config: Mapping[str, Any], kind: str) -> list[str]:
    """The kind of attention of every layer."""
    count = _size(config, "num_hidden_layers")
    listed = config.get("layer_types")
    if listed is not None:
        if len(listed) != count:
            raise ValueError(f"layer_types must name {count} layers, got {len(listed)}")
        return list(listed)
    if kind == "qwen3_5_text":
        every = config.get("full_attention_interval", 4)
        return [_LINEAR if (i + 1) % every else "full_attention" for i in range(count)]
    # the patterns that transformers fills in: every second, every sixth layer sees all
    period = {"gemma2": 2, "gemma3_text": config.get("sliding_window_pattern", 6), "gemma4_unified_text": 6}
    if kind in period:
        return [_SLIDING if (i + 1) % period[kind] else "full_attention" for i in range(count)]
    if kind == "mistral" and config.get("sliding_window"):
        return [_SLIDING] * count
    if config.get("use_sliding_window") and config.get("sliding_window"):
        first = config.get("max_window_layers", count)
        return [_SLIDING if i >= first else "full_attention" for i in range(count)]
    return ["full_attention"] * count


def _mixer(config: Mapping[str, Any], kind: str, layer_type: str, index: int) -> Mixer:
    if layer_type == _LINEAR:
        return LinearAttention(
            num_key_heads=_size(config, "linear_num_key_heads"),
            num_value_heads=_size(config, "linear_num_value_heads"),
            key_dim=_size(config, "linear_key_head_dim"),
            value_dim=_size(config, "linear_value_head_dim"),
            kernel=_size(config, "linear_conv_kernel_dim"),
        )
    if layer_type not in (_SLIDING, "full_attention"):
        raise ValueError(f"layer_types must be full, sliding or linear attention, got {layer_type!r}")
    values_are_keys = layer_type == "full_attention" and bool(config.get("attention_k_eq_v"))
    sizes = _head_sizes(config, kind, layer_type, index)
    heads = _size(sizes, "num_attention_heads")
    bias = bool(config.get("attention_bias", False))
    return Attention(
        num_heads=heads,
        num_kv_heads=sizes.get("num_key_value_heads") or heads,
        head_dim=sizes.get("head_dim") or _size(config, "hidden_size") // heads,
        window=_size(config, "sliding_window") if layer_type == _SLIDING else None,
        output_gate=kind == "qwen3_5_text",
        values_are_keys=values_are_keys,
        norms=kind in ("qwen3", "qwen3_moe", "qwen3_5_text", "gemma3_text", "gemma4_unified_text"),
        input_bias=bias or kind == "qwen2",  # which has them without saying so
        output_bias=bias,
    )


def _head_sizes(config: Mapping[str, Any], kind: str, layer_type: str, index: int) -> dict[str, Any]:
    """The config with what this layer's heads have of their own: Gemma 4's are wider where all is seen."""
    listed = config.get("per_layer_config")  # as recent versions of transformers write it, by "07"
    if isinstance(listed, Mapping):
        return {**config, **{int(key): own for key, own in listed.items()}.get(index, {})}
    if kind != "gemma4_unified_text" or layer_type == _SLIDING:
        return dict(config)
    wider = {**config, "head_dim": config.get("global_head_dim", 512)}
    if config.get("attention_k_eq_v") and config.get("num_global_key_value_heads"):
        wider["num_key_value_heads"] = config["num_global_key_value_heads"]
    return wider


def _feed_forward(config: Mapping[str, Any], kind: str, index: int) -> FeedForward:
    dense = Dense(intermediate=_size(config, "intermediate_size"), bias=bool(config.get("mlp_bias", False)))
    if kind != "qwen3_moe" or index in (config.get("mlp_only_layers") or ()):
        return dense
    if (index + 1) % config.get("decoder_sparse_step", 1):
        return dense
    return Experts(
        num_experts=_size(config, "num_experts" if config.get("num_experts") else "num_local_experts"),
        experts_per_token=_size(config, "num_experts_per_tok"),
        intermediate=_size(config, "moe_intermediate_size"),
    )


def _size(config: Mapping[str, Any], key: str) -> int:
    """A whole number >= 1 of the config."""
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} must be a whole number >= 1, got {value!r}")
    return value
