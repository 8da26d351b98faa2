"""Rotary positions of the drafters, always computed in float32.

The frequencies are no part of the module that uses them: a cast of the module to bfloat16 would
round them, and turn a key at position 4096 by several radians (DeepSpec's trainer does so, its
evaluator does not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dspark.drafters.spec import DraftSpec


class Rotary:
    """Cosines and sines of positions.

    Args:
        spec: whose head size and ``rope`` are used. ``rope_type`` default: theta^(-2i/h) (Su et al.,
            arXiv 2104.09864); the others are those of transformers.
    """

    def __init__(self, spec: DraftSpec) -> None:
        with torch.device("cpu"):  # also where the module around it is made on the meta device
            self.frequencies, self.scaling = _frequencies(spec)

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine, each [..., h], of integer positions [...]."""
        if self.frequencies.device != positions.device:
            self.frequencies = self.frequencies.to(positions.device)
        angles = positions[..., None].float() * self.frequencies
        angles = torch.cat([angles, angles], -1)
        return (angles.cos() * self.scaling).to(dtype), (angles.sin() * self.scaling).to(dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """``x`` [..., h] turned by its position: the halves of the last axis are the pairs, as in Llama."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def _frequencies(spec: DraftSpec) -> tuple[Tensor, float]:
    """Float32 [h/2] and what cosine and sine are multiplied by."""
    if spec.rope["rope_type"] == "default":
        exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim
        return 1.0 / (float(spec.rope["rope_theta"]) ** exponents), 1.0
    from transformers import LlamaConfig  # heavy, and needed for scaled frequencies only
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=spec.num_heads * spec.head_dim,
        num_attention_heads=spec.num_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.max_context,
        rope_parameters=dict(spec.rope),
    )
    frequencies, scaling = ROPE_INIT_FUNCTIONS[spec.rope["rope_type"]](config, torch.device("cpu"))
    return frequencies.float(), float(scaling)
