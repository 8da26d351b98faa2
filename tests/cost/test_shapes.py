"""Sizes of published models against the models themselves, and costs of layers worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from dspark.cost.compressed_attention import CompressedAttention
from dspark.cost.feed_forward import Dense, Experts, expert_coverage, tokens_for_coverage
from dspark.cost.mixers import Attention, LinearAttention
from dspark.cost.named_shapes import SHAPES, named_shape
from dspark.cost.pass_size import PassSize
from dspark.cost.shape_from_config import MODEL_TYPES, from_config, load_shape, shape_of
from dspark.cost.shapes import LayerGroup, ModelShape

LLAMA = {"num_key_value_heads": 8, "vocab_size": 128_256}
QWEN3 = {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936}
FLASH_RATIOS = [0, 0] + [4, 128] * 20 + [4]

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "smollm2": (
        "llama",
        {
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "vocab_size": 49_152,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3_4b": (
        "qwen3",
        QWEN3
        | {
            "hidden_size": 2560,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "intermediate_size": 9728,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3_8b": (
        "qwen3",
        QWEN3
        | {
            "hidden_size": 4096,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "intermediate_size": 12_288,
        },
    ),
    "qwen3_14b": (
        "qwen3",
        QWEN3
        | {
            "hidden_size": 5120,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "intermediate_size": 17_408,
        },
    ),
    "llama3_1_8b": (
        "llama",
        LLAMA
        | {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 14_336,
        },
    ),
    "llama3_1_70b": (
        "llama",
        LLAMA
        | {
            "hidden_size": 8192,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "intermediate_size": 28_672,
        },
    ),
    "qwen3_5_27b": (
        "qwen3_5_text",
        {
            "hidden_size": 5120,
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "intermediate_size": 17_408,
            "linear_num_value_heads": 48,
        },
    ),
    "gemma4_12b": (
        "gemma4_unified_text",
        {
            "hidden_size": 3840,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "num_global_key_value_heads": 1,
            "intermediate_size": 15_360,
            "attention_k_eq_v": True,
        },
    ),
    "deepseek_v4_flash": ("deepseek_v4", {"compress_ratios": FLASH_RATIOS}),
}
"""The published configs; what is left out is the default of the class in transformers."""

PUBLISHED = {
    "smollm2": (135e6, 0.005),  # the name
    "qwen3_4b": (4.0e9, 0.01),  # model cards: 4.0B, 8.2B, 14.8B
    "qwen3_8b": (8.2e9, 0.01),
    "qwen3_14b": (14.8e9, 0.01),
    "llama3_1_8b": (8.03e9, 0.001),  # the hub's count of safetensors: 8.03B, 70.6B
    "llama3_1_70b": (70.6e9, 0.001),
    "qwen3_5_27b": (27e9, 0.01),  # model card: 27B
    "gemma4_12b": (11.95e9, 0.005),  # model card: 11.95B, with some 40M for images and sound
    "deepseek_v4_flash": (284e9, 0.002),  # model card: 284B, of which 13B are activated
}
"""Published parameters, and how near the shape must come."""


@pytest.fixture(scope="module")
def real_counts() -> dict[str, int]:
    """Parameters of the models that transformers builds, without storage."""
    return {name: _count(AutoConfig.for_model(kind, **sizes)) for name, (kind, sizes) in CONFIGS.items()}


def _count(config: Any) -> int:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(weights.numel() for weights in model.parameters())


class TestNamedShapes:
    @pytest.mark.parametrize("name", SHAPES)
    def test_parameters_are_those_of_the_model(self, name: str, real_counts: dict[str, int]) -> None:
        assert SHAPES[name].num_parameters == real_counts[name]

    @pytest.mark.parametrize("name", SHAPES)
    def test_parameters_are_those_that_were_published(self, name: str) -> None:
        published, tolerance = PUBLISHED[name]
        assert SHAPES[name].num_parameters == pytest.approx(published, rel=tolerance)
        assert SHAPES[name].source

    def test_thirteen_billion_of_deepseek_are_active(self) -> None:
        assert SHAPES["deepseek_v4_flash"].active_parameters == pytest.approx(13e9, rel=0.03)

    def test_qwen3_8b_by_hand(self) -> None:
        attention = 4096 * 128 * (32 + 8 + 8) + 32 * 128 * 4096  # q, k, v, then the output
        layer = attention + 3 * 4096 * 12_288 + 2 * 4096 + 2 * 128  # and its norms
        assert layer == 192_946_432
        embedding = 151_936 * 4096
        assert SHAPES["qwen3_8b"].num_parameters == 36 * layer + 2 * embedding + 4096 == 8_190_735_360
        # 2 (key, value) x 8 heads x 128 x 36 layers x 2 bytes
        assert SHAPES["qwen3_8b"].kv_bytes_per_token(2) == 147_456

    def test_an_unknown_name_is_answered_with_the_likely_one(self) -> None:
        with pytest.raises(ValueError, match=r"'qwen3-8b': did you mean 'qwen3_8b'\? there are smollm2, "):
            named_shape("qwen3-8b")


class TestFromConfig:
    @pytest.mark.parametrize("name", [name for name in SHAPES if name != "deepseek_v4_flash"])
    def test_a_published_config_gives_the_named_shape(self, name: str) -> None:
        kind, sizes = CONFIGS[name]
        shape, config = SHAPES[name], AutoConfig.for_model(kind, **sizes).to_dict()
        read = from_config(json.loads(json.dumps(config)))
        assert (read.hidden, read.vocab, read.tied_head) == (shape.hidden, shape.vocab, shape.tied_head)
        assert set(read.groups) == set(shape.groups)

    def test_gemma_4_as_its_checkpoint_writes_it(self) -> None:
        kind, sizes = CONFIGS["gemma4_12b"]
        text = {"model_type": kind, "vocab_size": 262_144, "head_dim": 256, "sliding_window": 1024, **sizes}
        read = from_config({"model_type": "gemma4_unified", "text_config": text})
        assert set(read.groups) == set(SHAPES["gemma4_12b"].groups)

    @pytest.mark.parametrize("kind", [kind for kind in MODEL_TYPES if kind != "gemma4_unified_text"])
    def test_parameters_are_those_of_the_model(self, kind: str) -> None:
        sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7, "vocab_size": 300}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24}
        more: dict[str, Any] = {}
        if kind == "qwen3_moe":
            more = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
            more |= {"mlp_only_layers": [1], "decoder_sparse_step": 2}
        if kind in ("llama", "qwen3"):
            more = {"attention_bias": True}
        if kind == "llama":
            more |= {"mlp_bias": True}
        if kind.startswith("gemma") or kind == "mistral":
            more |= {"pad_token_id": 0}
        config = AutoConfig.for_model(kind, **sizes, **heads, **more)
        assert from_config(config.to_dict()).num_parameters == _count(config)

    @pytest.mark.parametrize("family", ["tiny_llama", "tiny_qwen3", "tiny_gemma2", "tiny_gemma3"])
    def test_a_folder_on_disk(self, family: str, request: pytest.FixtureRequest) -> None:
        folder: Path = request.getfixturevalue(family)
        shape = load_shape(folder)
        assert shape.num_parameters == _count(AutoConfig.from_pretrained(folder))
        assert (shape.name, shape.source) == (folder.name, str(folder / "config.json"))
        assert shape_of(str(folder)) == shape

    def test_sliding_layers_keep_their_window(self, tiny_gemma2: Path) -> None:
        windows = {(g.mixer.window, g.count) for g in load_shape(tiny_gemma2).groups}  # pyright: ignore
        assert windows == {(8, 1), (None, 1)}  # one layer of each, window of models.synthetic

    def test_smollm2_on_disk_is_the_named_shape(self, smollm2_path: Path) -> None:
        assert load_shape(smollm2_path).groups == SHAPES["smollm2"].groups
        assert load_shape(smollm2_path).num_parameters == SHAPES["smollm2"].num_parameters == 134_515_008

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"model_type": "mamba"}, "model_type must be one of llama, .*got 'mamba'"),
            ({"model_type": None}, "got 'None'"),
            ({"hidden_size": None}, "hidden_size must be a whole number >= 1, got None"),
            ({"intermediate_size": "wide"}, "intermediate_size must be a whole number >= 1, got 'wide'"),
            ({"layer_types": ["full_attention"]}, "layer_types must name 2 layers, got 1"),
            ({"layer_types": ["full_attention", "mamba"]}, "got 'mamba'"),
            ({"num_kv_shared_layers": 1}, "are not modelled"),
        ],
    )
    def test_what_is_not_understood_is_refused(self, change: dict[str, Any], message: str) -> None:
        config = {
            "model_type": "llama",
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "vocab_size": 10,
        }
        assert from_config(config).num_layers == 2
        with pytest.raises(ValueError, match=message):
            from_config(config | change)

    def test_a_folder_without_a_config(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="cannot read .*config.json: No such file"):
            load_shape(tmp_path)
        (tmp_path / "config.json").write_text("[]")
        with pytest.raises(ValueError, match="must be a JSON object, got list"):
            load_shape(tmp_path)


class TestExperts:
    def test_coverage_by_hand(self) -> None:
        # 16 tokens choose 8 of 128: a given expert is missed with (1 - 1/16)^16 = 0.35607
        assert expert_coverage(16, 128, 8).item() == pytest.approx(128 * (1 - 0.9375**16))
        assert expert_coverage(16, 128, 8).item() == pytest.approx(82.42, abs=0.005)
        assert expert_coverage(0, 128, 8).item() == 0
        assert expert_coverage(1, 128, 8).item() == pytest.approx(8)

    def test_coverage_of_random_choices(self) -> None:
        generator = torch.Generator().manual_seed(0)
        chosen = torch.rand(2000, 16, 128, generator=generator).topk(8, dim=-1).indices.flatten(1)
        distinct = torch.zeros(2000, 128).scatter_(1, chosen, 1.0).sum(dim=1).mean().item()
        assert distinct == pytest.approx(expert_coverage(16, 128, 8).item(), abs=0.5)

    @pytest.mark.parametrize(
        ("num_experts", "per_token", "tokens"), [(8, 2, 11), (64, 8, 23), (128, 8, 47), (256, 8, 95)]
    )
    def test_tokens_that_read_most_experts(self, num_experts: int, per_token: int, tokens: int) -> None:
        assert tokens_for_coverage(num_experts, per_token) == tokens
        few, enough = (expert_coverage(t, num_experts, per_token).item() for t in (tokens - 1, tokens))
        assert few < 0.95 * num_experts <= enough

    def test_edges(self) -> None:
        assert tokens_for_coverage(2, 1, share=0.75) == 2  # 1 - (1/2)^2, exactly
        assert tokens_for_coverage(4, 4) == 1
        assert tokens_for_coverage(4, 1, share=0.0) == 0
        with pytest.raises(ValueError, match=r"share must be in \[0, 1\), got 1"):
            tokens_for_coverage(4, 1, share=1)
        with pytest.raises(ValueError, match="between 1 and num_experts=4, got 5"):
            Experts(num_experts=4, experts_per_token=5, intermediate=8)

    def test_what_a_pass_reads(self) -> None:
        mlp = Experts(num_experts=4, experts_per_token=1, intermediate=5, num_shared=1)
        one = 3 * 2 * 5  # matrices of hidden 2 and 5
        assert mlp.stored_parameters(2) == 2 * 4 + 5 * one
        assert mlp.used_parameters(2) == 2 * 4 + 2 * one
        # two tokens: 4 (1 - (3/4)^2) = 1.75 experts, and the shared one
        read = mlp.read_parameters(2, torch.tensor([1.0, 2.0], dtype=torch.float64))
        assert read.tolist() == pytest.approx([8 + 2 * one, 8 + 2.75 * one])


def _size(rows: float, tokens: float, context: float) -> PassSize:
    return PassSize.of(rows=rows, tokens=tokens, context_tokens=context)


class TestLayers:
    def test_attention_by_hand(self) -> None:
        mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8)
        # 2 rows of 3 new tokens behind 10 each: they see 11, 12 and 13, so 12 on average
        size = _size(2, 6, 20)
        assert mixer.context_flops(size).item() == 4 * 4 * 8 * 12
        # 10 read and 3 written a row, each 2 x 2 heads x 8 values of 2 bytes
        assert mixer.cache_bytes(size, 2).item() == (10 + 3) * 64

    def test_a_window_bounds_what_is_seen_and_read(self) -> None:
        mixer = Attention(num_heads=4, num_kv_heads=2, head_dim=8, window=5)
        size = _size(2, 6, 20)
        assert mixer.context_flops(size).item() == 4 * 4 * 8 * 5
        assert mixer.cache_bytes(size, 2).item() == (5 + 3) * 64
        assert mixer.held_bytes(20, 2) == 5 * 64
        assert mixer.held_bytes(3, 2) == 3 * 64

    def test_linear_attention_does_not_look_at_the_context(self) -> None:
        mixer = LinearAttention(num_key_heads=1, num_value_heads=2, key_dim=4, value_dim=8, kernel=4)
        near, far = _size(1, 2, 10), _size(1, 2, 100_000)
        # state 2 x 4 x 8 = 64 values; convolution over 4 + 4 + 16 = 24 channels
        assert mixer.context_flops(near).item() == 6 * 64 + 2 * 4 * 24
        # state in and out in float32, and 3 inputs of the convolution in 2 bytes
        assert mixer.cache_bytes(near, 2).item() == 2 * (64 * 4 + 3 * 24 * 2)
        assert mixer.context_flops(far).item() == mixer.context_flops(near).item()
        assert mixer.cache_bytes(far, 2).item() == mixer.cache_bytes(near, 2).item()
        assert mixer.kv_bytes_per_token(2) == 0

    def test_compressed_attention_by_hand(self) -> None:
        sizes = {"num_heads": 2, "head_dim": 8, "query_rank": 4, "output_groups": 1, "output_rank": 4}
        plain = CompressedAttention(**sizes, window=16)
        heavy = CompressedAttention(**sizes, window=16, ratio=4)
        indexed = CompressedAttention(
            **sizes, window=16, ratio=4, index_heads=3, index_head_dim=2, index_top=5
        )
        size = _size(1, 1, 79)  # the token sees itself and 79 before it: 16 in the window, 80 / 4 entries
        assert plain.context_flops(size).item() == 4 * 2 * 8 * 16
        assert heavy.context_flops(size).item() == 4 * 2 * 8 * (16 + 20)
        assert indexed.context_flops(size).item() == 4 * 2 * 8 * (16 + 5) + 2 * 3 * 2 * 20
        # one vector of 8 a cached token, for keys and values alike; written: 1, and a quarter of an entry
        assert plain.cache_bytes(size, 2).item() == 2 * (8 * 16 + 8)
        assert heavy.cache_bytes(size, 2).item() == 2 * (8 * (16 + 79 / 4) + 8 + 8 / 4)
        assert indexed.cache_bytes(size, 2).item() == 2 * (8 * (16 + 5) + 2 * 79 / 4 + 8 + (8 + 2) / 4)
        # four tokens may choose 20 entries, of which there are 79 / 4
        four = _size(1, 4, 79)
        assert indexed.cache_bytes(four, 2).item() == 2 * ((8 + 2) * 79 / 4 + 8 * 16 + 8 * 4 + (8 + 2))
        assert indexed.held_bytes(80, 2) == 2 * (8 * 16 + (8 + 2) * 20)

    def test_a_whole_model_by_hand(self) -> None:
        mixer = Attention(num_heads=2, num_kv_heads=1, head_dim=4)
        group = LayerGroup(count=3, mixer=mixer, feed_forward=Dense(intermediate=16))
        shape = ModelShape(name="toy", source="here", hidden=8, vocab=10, tied_head=False, groups=(group,))
        matrices = 8 * 4 * (2 + 1 + 1) + 2 * 4 * 8 + 3 * 8 * 16
        assert shape.num_parameters == 3 * (matrices + 2 * 8) + 2 * 80 + 8
        size = _size(2, 4, 6)  # two rows of two tokens behind three each: they see 4 and 5
        scores = 3 * 4 * 2 * 4 * 4.5
        assert shape.flops(size).item() == 4 * (2 * 3 * matrices + scores) + 4 * 2 * 80
        assert shape.flops(size, num_logits=torch.tensor(2.0)).item() == shape.flops(size).item() - 2 * 2 * 80
        # all weights but the embedding, of which four rows; the head is a matrix of its own
        assert shape.weight_bytes(size.tokens, 2).item() == 2 * (shape.num_parameters - 80 + 4 * 8)
        assert shape.cache_bytes(size, 2).item() == 2 * 3 * (3 + 2) * 2 * 4 * 2

    def test_a_tied_head_is_read_as_the_head(self) -> None:
        shape = SHAPES["qwen3_4b"]
        one = torch.tensor(1.0, dtype=torch.float64)
        assert shape.weight_bytes(one, 2).item() == 2 * (shape.num_parameters + shape.hidden)

    def test_wrong_sizes_are_refused(self) -> None:
        group = SHAPES["smollm2"].groups[0]
        sizes: dict[str, Any] = {"name": "toy", "source": "", "vocab": 10, "tied_head": True}
        with pytest.raises(ValueError, match="toy needs at least one layer"):
            ModelShape(hidden=8, groups=(), **sizes)
        with pytest.raises(ValueError, match="hidden of toy must be >= 1, got 0"):
            ModelShape(hidden=0, groups=(group,), **sizes)
        with pytest.raises(ValueError, match="tokens of a pass must be >= 0, got -1"):
            _size(1, -1, 0)

    def test_a_pass_without_decode_rows_is_one_row(self) -> None:
        assert _size(0, 7, 0).tokens_per_row.item() == 7
