"""Random models of known shapes, made on the device: speed does not depend on what the weights say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from dspark.models import attention_choice
from dspark.models.target import HFTarget

if TYPE_CHECKING:
    from dspark.models.attention_choice import AttentionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder of the Llama kind."""

    name: str
    num_layers: int
    hidden: int
    intermediate: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    source: str  # whose sizes these are

    @property
    def num_parameters(self) -> int:
        """Weights of embedding, layers (attention, gated MLP, two norms), last norm and head."""
        attention = self.hidden * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.num_layers * layer + self.hidden + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def read_bytes(self) -> int:
        """Bytes of bfloat16 weights that a decode step reads: all but an embedding that is no head too."""
        return 2 * (self.num_parameters - (0 if self.tied else self.vocab * self.hidden))


SHAPES = (
    Shape(
        name="1B",
        num_layers=16,
        hidden=2048,
        intermediate=8192,
        num_heads=32,
        num_kv_heads=8,
        head_dim=64,
        vocab=128_256,
        tied=True,
        source="Llama 3.2 1B, https://huggingface.co/meta-llama/Llama-3.2-1B/blob/main/config.json",
    ),
    Shape(
        name="3B",
        num_layers=28,
        hidden=3072,
        intermediate=8192,
        num_heads=24,
        num_kv_heads=8,
        head_dim=128,
        vocab=128_256,
        tied=True,
        source="Llama 3.2 3B, https://huggingface.co/meta-llama/Llama-3.2-3B/blob/main/config.json",
    ),
    Shape(
        name="8B",
        num_layers=32,
        hidden=4096,
        intermediate=14_336,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        vocab=128_256,
        tied=False,
        source="Llama 3.1 8B, https://huggingface.co/meta-llama/Llama-3.1-8B/blob/main/config.json",
    ),
)


def random_target(
    shape: Shape,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    attention: AttentionKind = "varlen",
    cuda_graphs: bool | None = None,
    max_context: int = 4096,
    seed: int = 0,
) -> HFTarget:
    """A loaded target of that shape with random weights, without a file in between.

    Raises:
        ValueError: attention or graphs cannot serve there.
    """
    config = LlamaConfig(
        num_hidden_layers=shape.num_layers,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=max_context,
        bos_token_id=None,
        eos_token_id=None,
    )
    attention_choice.register()
    name = attention_choice.choose_attention(
        attention, numerics="fast", device=device, dtype=dtype, config=config
    )
    torch.manual_seed(seed)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=name)
    model.eval().requires_grad_(False)
    return HFTarget(model, None, name=shape.name, numerics="fast", cuda_graphs=cuda_graphs)
