"""Published models by their sizes, without weights.

The sizes are those of each checkpoint's ``config.json``, the structure is that of its class in
transformers; ``source`` says where each was read. Only the text decoder is counted: no vision or
audio parts, no multi-token-prediction layers.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING

from dspark.cost.compressed_attention import CompressedAttention
from dspark.cost.feed_forward import Dense, Experts
from dspark.cost.mixers import Attention, LinearAttention
from dspark.cost.shapes import LayerGroup, ModelShape

if TYPE_CHECKING:
    from collections.abc import Mapping


def _qwen3(size: str, *, layers: int, hidden: int, heads: int, intermediate: int, tied: bool) -> ModelShape:
    """A dense Qwen3: 8 key/value heads of 128, norms on queries and keys."""
    mixer = Attention(num_heads=heads, num_kv_heads=8, head_dim=128, norms=True)
    return ModelShape(
        name=f"Qwen3-{size}",
        source=f"config.json of huggingface.co/Qwen/Qwen3-{size}; Qwen3 report, arXiv 2505.09388, table 1",
        hidden=hidden,
        vocab=151_936,
        tied_head=tied,
        groups=(LayerGroup(count=layers, mixer=mixer, feed_forward=Dense(intermediate=intermediate)),),
    )


def _llama(size: str, *, layers: int, hidden: int, heads: int, intermediate: int) -> ModelShape:
    """A Llama 3.1: 8 key/value heads of 128, an untied head."""
    mixer = Attention(num_heads=heads, num_kv_heads=8, head_dim=128)
    return ModelShape(
        name=f"Llama-3.1-{size}",
        source="models/sku_list.py of github.com/meta-llama/llama-models; The Llama 3 Herd of Models, "
        "arXiv 2407.21783, table 3",
        hidden=hidden,
        vocab=128_256,
        tied_head=False,
        groups=(LayerGroup(count=layers, mixer=mixer, feed_forward=Dense(intermediate=intermediate)),),
    )


def _qwen3_5_27b() -> ModelShape:
    """Three linear-attention layers to one of gated full attention, 16 times."""
    mlp = Dense(intermediate=17_408)
    linear = LinearAttention(num_key_heads=16, num_value_heads=48, key_dim=128, value_dim=128, kernel=4)
    full = Attention(num_heads=24, num_kv_heads=4, head_dim=256, output_gate=True, norms=True)
    return ModelShape(
        name="Qwen3.5-27B",
        source="text_config in config.json of huggingface.co/Qwen/Qwen3.5-27B, state in float32 "
        "(mamba_ssm_dtype); structure of transformers' qwen3_5",
        hidden=5120,
        vocab=248_320,
        tied_head=False,
        groups=(
            LayerGroup(count=48, mixer=linear, feed_forward=mlp),
            LayerGroup(count=16, mixer=full, feed_forward=mlp),
        ),
    )


def _gemma4_12b() -> ModelShape:
    """Five layers with a window of 1024 to one that sees all, 8 times; wider heads in the latter."""
    mlp = Dense(intermediate=15_360)
    sliding = Attention(num_heads=16, num_kv_heads=8, head_dim=256, window=1024, norms=True)
    full = Attention(num_heads=16, num_kv_heads=1, head_dim=512, values_are_keys=True, norms=True)
    return ModelShape(
        name="Gemma-4-12B",
        source="text_config in config.json of huggingface.co/google/gemma-4-12B-it; structure of "
        "transformers' gemma4_unified",
        hidden=3840,
        vocab=262_144,
        tied_head=True,
        groups=(
            LayerGroup(count=40, mixer=sliding, feed_forward=mlp, num_norms=4),
            LayerGroup(count=8, mixer=full, feed_forward=mlp, num_norms=4),
        ),
    )


def _deepseek_v4_flash() -> ModelShape:
    """Two layers with a window alone, then 21 with an indexed and 20 with a heavily compressed context.

    One dtype for all weights, where the checkpoint has 4-bit experts and 8-bit rest; the first three
    layers choose experts by a hash of the token, which counts the same.
    """
    sizes = {
        "num_heads": 64,
        "head_dim": 512,
        "query_rank": 1024,
        "output_groups": 8,
        "output_rank": 1024,
        "window": 128,
    }
    experts = Experts(num_experts=256, experts_per_token=6, intermediate=2048, num_shared=1)
    sliding = CompressedAttention(**sizes)
    indexed = CompressedAttention(**sizes, ratio=4, index_heads=64, index_head_dim=128, index_top=512)
    compressed = CompressedAttention(**sizes, ratio=128)
    return ModelShape(
        name="DeepSeek-V4-Flash",
        source="defaults of transformers' DeepseekV4Config (deepseek-ai/DeepSeek-V4-Flash-Base); layer "
        "schedule from MODEL_CARD.md of github.com/antirez/ds4",
        hidden=4096,
        vocab=129_280,
        tied_head=False,
        residual_streams=4,
        groups=(
            LayerGroup(count=2, mixer=sliding, feed_forward=experts),
            LayerGroup(count=21, mixer=indexed, feed_forward=experts),
            LayerGroup(count=20, mixer=compressed, feed_forward=experts),
        ),
    )


def _smollm2_135m() -> ModelShape:
    mixer = Attention(num_heads=9, num_kv_heads=3, head_dim=64)
    return ModelShape(
        name="SmolLM2-135M",
        source="config.json of huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        hidden=576,
        vocab=49_152,
        tied_head=True,
        groups=(LayerGroup(count=30, mixer=mixer, feed_forward=Dense(intermediate=1536)),),
    )


SHAPES: Mapping[str, ModelShape] = MappingProxyType(
    {
        "smollm2": _smollm2_135m(),
        "qwen3_4b": _qwen3("4B", layers=36, hidden=2560, heads=32, intermediate=9728, tied=True),
        "qwen3_8b": _qwen3("8B", layers=36, hidden=4096, heads=32, intermediate=12_288, tied=False),
        "qwen3_14b": _qwen3("14B", layers=40, hidden=5120, heads=40, intermediate=17_408, tied=False),
        "qwen3_5_27b": _qwen3_5_27b(),
        "llama3_1_8b": _llama("8B", layers=32, hidden=4096, heads=32, intermediate=14_336),
        "llama3_1_70b": _llama("70B", layers=80, hidden=8192, heads=64, intermediate=28_672),
        "gemma4_12b": _gemma4_12b(),
        "deepseek_v4_flash": _deepseek_v4_flash(),
    }
)
"""Shapes by name."""


def named_shape(name: str) -> ModelShape:
    """The shape of that name.

    Raises:
        ValueError: no such name.
    """
    if name in SHAPES:
        return SHAPES[name]
    near = difflib.get_close_matches(name, SHAPES, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"no model shape is named {name!r}: {hint}there are {', '.join(SHAPES)}")
