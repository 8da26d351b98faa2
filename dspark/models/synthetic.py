"""Tiny random models, as folders that look like downloaded ones: tests and dry runs need no network.

The weights are drawn so that a model behaves like a language model where it matters here: its
distribution is neither flat nor one-hot, depends on the whole context, and greedy text does not
fall into a loop at once. Every switch that an attention function can overlook has an effect:
grouped heads, a head size that is not ``hidden_size / num_heads``, a scale that is not its inverse
root, sliding windows of a few tokens, soft caps that bite, sinks, biases, norms that are not 1.

The tokenizer is byte-level: token ``i < 256`` is byte ``i``, followed by three special tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from safetensors.torch import save_file
from torch import Tensor

if TYPE_CHECKING:
    from pathlib import Path

Family = Literal["llama", "qwen3", "gemma2", "gemma3", "gpt_oss"]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NUM_TOKENS = 256 + len(SPECIAL_TOKENS)
"""Vocabulary of the byte-level tokenizer."""

BOS_ID, IM_START_ID, EOS_ID = range(256, NUM_TOKENS)

_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_HEAD_DIM = 24
_ATTENTION_SCALAR = 40  # scores are divided by its root, and not by that of the head size
_SLIDING_WINDOW = 8
_LOGIT_STD = 2.5  # perplexity between 15 and 40, of 259 tokens
_QK_GAIN = 2.0  # attention that prefers some tokens over others
_NORM_STD = 0.2


def make_synthetic_target(
    folder: Path,
    *,
    family: Family = "llama",
    vocab_size: int = NUM_TOKENS,
    num_layers: int = 2,
    hidden_size: int = 64,
    max_context: int = 512,
    seed: int = 0,
    noise: float = 0.0,
) -> Path:
    """``folder``, which then holds a random model in Hugging Face format, tokenizer included.

    Args:
        folder: made if missing; a model in it is overwritten.
        family: the architecture. The Gemma families and ``gpt_oss`` alternate sliding and full layers.
        vocab_size: V. With fewer than :data:`NUM_TOKENS` entries there is no tokenizer, and token 0
            ends a sequence; with more, the surplus ids have no text.
        num_layers: decoder layers.
        hidden_size: width, a multiple of 32.
        max_context: positions that the config promises.
        seed: of the weights.
        noise: relative size of a second, independent draw that is mixed into every weight. A small
            one gives a drafter that agrees with the noiseless model often, but not always.

    Raises:
        ValueError: a size that no model can have.
    """
    _check_sizes(family, vocab_size, num_layers, hidden_size, noise)
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig  # heavy

    has_tokenizer = vocab_size >= NUM_TOKENS
    config = AutoConfig.for_model(
        "gemma3_text" if family == "gemma3" else family,
        vocab_size=vocab_size,
        num_hidden_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_attention_heads=hidden_size // 16,
        num_key_value_heads=hidden_size // 32,
        head_dim=_HEAD_DIM,
        max_position_embeddings=max_context,
        tie_word_embeddings=False,  # tied random embeddings repeat the last token forever
        bos_token_id=BOS_ID if has_tokenizer else None,
        eos_token_id=EOS_ID if has_tokenizer else 0,
        pad_token_id=BOS_ID if has_tokenizer else None,
        **_family_fields(family, num_layers),
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    GenerationConfig.from_model_config(model.config).save_pretrained(folder)
    weights = _random_weights(family, shapes, seed, noise)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if has_tokenizer:
        byte_tokenizer().save_pretrained(folder)
    return folder


def _check_sizes(family: str, vocab_size: int, num_layers: int, hidden_size: int, noise: float) -> None:
    """Raise ValueError for what cannot be built."""
    checks = (
        (family in get_args(Family), f"family must be one of {', '.join(get_args(Family))}", family),
        (vocab_size >= 2, "vocab_size must be >= 2", vocab_size),
        (num_layers >= 1, "num_layers must be >= 1", num_layers),
        (hidden_size >= 32 and hidden_size % 32 == 0, "hidden_size must be a multiple of 32", hidden_size),
        (0 <= noise < float("inf"), "noise must be finite and >= 0", noise),
    )
    for holds, rule, got in checks:
        if not holds:
            raise ValueError(f"{rule}, got {got!r}")


def _family_fields(family: Family, num_layers: int) -> dict[str, Any]:
    """Config fields that one family has and others lack."""
    window: dict[str, Any] = {
        "sliding_window": _SLIDING_WINDOW,
        "layer_types": ["full_attention" if i % 2 else "sliding_attention" for i in range(num_layers)],
    }
    match family:
        case "llama":
            return {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}
        case "qwen3":
            return {"attention_bias": True}
        case "gemma2":
            return {
                **window,
                "query_pre_attn_scalar": _ATTENTION_SCALAR,
                "attn_logit_softcapping": 2.0,
                "final_logit_softcapping": 10.0,
            }
        case "gemma3":
            return {**window, "query_pre_attn_scalar": _ATTENTION_SCALAR}
        case "gpt_oss":
            rope = {"rope_type": "default", "rope_theta": 10_000.0}
            return {**window, "num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": rope}


def _random_weights(
    family: Family, shapes: dict[str, torch.Size], seed: int, noise: float
) -> dict[str, Tensor]:
    """One float32 tensor a name; the draw depends on seed and shapes, not on transformers' own init."""
    clean = torch.Generator().manual_seed(seed)
    extra = torch.Generator().manual_seed(seed + 1_000_003)
    return {
        name: _centre(family, name)
        + _spread(name, shape) * torch.randn(shape, generator=clean)
        + _spread(name, shape) * noise * torch.randn(shape, generator=extra)
        for name, shape in shapes.items()
    }


def _centre(family: Family, name: str) -> float:
    """The weight's mean: 0, except that norms multiply by about 1, and those of queries and keys by more."""
    if not name.endswith("norm.weight"):
        return 0.0
    factor = _QK_GAIN if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0
    return factor - 1.0 if family.startswith("gemma") else factor  # Gemma multiplies by 1 + weight


def _spread(name: str, shape: torch.Size) -> float:
    """The weight's standard deviation: activations keep their size from layer to layer."""
    if len(shape) == 1 or name.endswith("bias"):  # norms, biases, sinks
        return _NORM_STD
    if "embed_tokens" in name:
        return 1.0
    fan_in = shape[-1] if len(shape) == 2 else shape[-2]  # experts are stored [E, in, out]
    gain = {"lm_head.weight": _LOGIT_STD, "q_proj.weight": _QK_GAIN, "k_proj.weight": _QK_GAIN}
    return gain.get(name.rpartition("self_attn.")[2], 1.0) / fan_in**0.5


def byte_tokenizer() -> Any:
    """A transformers tokenizer: bytes 0–255, ``SPECIAL_TOKENS``, and a ChatML template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    bos, start, eos = SPECIAL_TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        eos_token=eos,
        pad_token=bos,
        additional_special_tokens=[start],
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
