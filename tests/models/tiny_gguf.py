"""Writes a tiny Llama as a GGUF file the way llama.cpp's converter does, for tests of the way back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoTokenizer

from dspark.models.synthetic import NUM_TOKENS, SPECIAL_TOKENS

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


MERGED_TOKENS = ("ab", "abc")
"""Tokens after those of the byte tokenizer: readers want more than one merge, and it has none."""

VOCAB_SIZE = NUM_TOKENS + len(MERGED_TOKENS)


def write_llama_gguf(folder: Path, path: Path) -> Path:
    """``path``, holding the Llama of ``folder`` in float32 with its tokenizer and ``MERGED_TOKENS``."""
    config, tokenizer = AutoConfig.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert config.vocab_size == VOCAB_SIZE, "merged tokens need rows of the embedding"
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_embedding_length(config.hidden_size)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*tokenizer.convert_ids_to_tokens(range(NUM_TOKENS)), *MERGED_TOKENS])
    specials = [TokenType.CONTROL] * len(SPECIAL_TOKENS)
    writer.add_token_types([*[TokenType.NORMAL] * 256, *specials, *[TokenType.NORMAL] * len(MERGED_TOKENS)])
    writer.add_token_merges(["a b", "ab c"])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_pad_token_id(config.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, weight in load_file(folder / "model.safetensors").items():
        writer.add_tensor(_gguf_name(name), _interleaved(name, weight, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    """``blk.0.attn_q.weight`` for ``model.layers.0.self_attn.q_proj.weight``."""
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{_NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.weight"


def _interleaved(name: str, weight: np.ndarray, config: AutoConfig) -> np.ndarray:
    """The weight with rotary pairs next to each other, where llama.cpp expects queries and keys so."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, num_heads in heads.items():
        if part in name:
            halves = weight.reshape(num_heads, 2, config.head_dim // 2, -1)
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
    return weight
