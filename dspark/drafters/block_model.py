"""The block backbone of DSpark and DFlash (arXiv 2607.05147): one module for training and drafting.

A block is the last committed token, the anchor, and mask tokens behind it. All its slots are
computed at once and see each other and the whole context. The context is not the drafter's own
hidden states but the target's: its features of every token before the anchor are mixed into one
vector a token, from which each layer makes keys and values. These depend on nothing else, so they
are made once a token (:meth:`BlockBackbone.context_kv`) and never change.

Parameters bear the names of DeepSpec's checkpoints. Shapes: ``B`` batch, ``T`` context tokens,
``S`` slots, ``d`` hidden size, ``H`` query and ``G`` key/value heads of size ``h``, ``W`` tokens that
can be drafted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dspark.drafters.heads import ConfidenceHead, MarkovHead
from dspark.drafters.rotary import Rotary, rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.drafters.spec import DraftSpec
    from dspark.models.linear import RowLinear
    from dspark.models.native.linear import NativeLinear

    Stacked = RowLinear | NativeLinear

KeysValues = tuple[Tensor, Tensor]
"""Keys, turned by their positions, and values: [B, G, T, h] each."""


class Attend(Protocol):
    """Attention of a layer's slots over context and block."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Float [B, H, S, h] for q [B, H, S, h] and the block's own k, v [B, G, S, h]."""
        ...


class BlockBackbone(nn.Module):
    """Everything of a block drafter with weights: backbone, heads, and the target's two tables.

    ``embed_tokens`` and, without a reduced vocabulary, ``lm_head`` are frozen and exist without
    memory (on the meta device) until :meth:`share` puts the target's in their place. ``d2t``
    int64 [W] is there for a reduced vocabulary: draft id + d2t[draft id] is the target's id.
    """

    d2t: Tensor | None

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        self.spec = spec
        d, eps = spec.hidden_size, spec.rms_norm_eps
        self.embed_tokens = nn.Embedding(spec.vocab_size, d, device="meta")
        head_device = None if spec.has_reduced_vocab else "meta"
        self.lm_head = nn.Linear(d, spec.draft_vocab_size, bias=False, device=head_device)
        self.fc = nn.Linear(spec.feature_size, d, bias=False)
        self.hidden_norm = nn.RMSNorm(d, eps)
        self.layers = nn.ModuleList(BlockLayer(spec) for _ in range(spec.num_layers))
        self.norm = nn.RMSNorm(d, eps)
        self.markov_head = MarkovHead(spec) if spec.markov_rank else None
        self.confidence_head = ConfidenceHead(spec) if spec.confidence_head else None
        d2t = torch.zeros(spec.draft_vocab_size, dtype=torch.int64) if spec.has_reduced_vocab else None
        self.register_buffer("d2t", d2t)
        self.rotary = Rotary(spec)
        self.embed_tokens.requires_grad_(False)
        self.lm_head.requires_grad_(spec.has_reduced_vocab)

    def share(self, embedding: Tensor, head: Tensor | None) -> None:
        """Use the target's embedding [V, d] and, unless None, its output head [V, d], without a copy."""
        self.embed_tokens.weight = nn.Parameter(embedding, requires_grad=False)
        if head is not None:
            self.lm_head.weight = nn.Parameter(head, requires_grad=False)

    def context(self, features: Tensor) -> Tensor:
        """Float [..., d]: what all layers see of tokens with these features [..., n * d]."""
        return self.hidden_norm(self.fc(features))

    def context_kv(self, context: Tensor, positions: Tensor) -> list[KeysValues]:
        """Each layer's keys and values of context tokens.

        Args:
            context: float [B, T, d], from :meth:`context`; every layer takes it as it is.
            positions: int [B, T], absolute.
        """
        turns = self.rotary(positions, context.dtype)
        return [layer.self_attn.keys_values(context, turns) for layer in self.block_layers()]

    def slots(self, anchors: Tensor, num_slots: int) -> Tensor:
        """Int [..., S]: the token ids of blocks that start with the anchors, int [...]."""
        assert self.spec.mask_token_id is not None, "a block drafter has a mask token"
        ids = torch.full((*anchors.shape, num_slots), self.spec.mask_token_id, device=anchors.device)
        ids[..., 0] = anchors
        return ids

    def block(
        self, token_ids: Tensor, positions: Tensor, context: Sequence[KeysValues], mask: Tensor | None
    ) -> Tensor:
        """Float [B, S, d]: the slots' outputs after the last norm, which all heads read.

        Args:
            token_ids: int [B, S], from :meth:`slots`; several blocks can lie one after another.
            positions: int [B, S], absolute: slot k of a block at s + k.
            context: each layer's keys and values, from :meth:`context_kv`.
            mask: bool [B, 1, S, T + S], True where a slot sees a context token or slot; None: each
                sees all. A slot must see something.

        Raises:
            ValueError: the drafter has layers with sliding windows or causal blocks: not one mask for all.
        """
        if not self.spec.sees_all:
            raise ValueError("one mask does not describe layers that see differently; use run with an Attend")

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = context[layer]
            keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)

        return self.run(token_ids, positions, attend)

    def run(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Float [B, S, d], as :meth:`block`, with attention given as a function."""
        x = self.embed_tokens(token_ids)
        turns = self.rotary(positions, x.dtype)
        for number, layer in enumerate(self.block_layers()):
            x = layer(x, turns, number, attend)
        return self.norm(x)

    def block_layers(self) -> list[BlockLayer]:
        """The decoder layers, typed."""
        return list(self.layers)  # pyright: ignore[reportReturnType]

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Int [...]: the target's ids of draft ids [...]."""
        return draft_ids if self.d2t is None else draft_ids + self.d2t[draft_ids]


class BlockLayer(nn.Module):
    """A decoder layer of the Llama and Qwen 3 kind."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = BlockAttention(spec)
        self.post_attention_layernorm = nn.RMSNorm(spec.hidden_size, spec.rms_norm_eps)
        self.mlp = GatedMLP(spec)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], number: int, attend: Attend) -> Tensor:
        """Float [B, S, d]."""
        x = x + self.self_attn(self.input_layernorm(x), turns, number, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class BlockAttention(nn.Module):
    """Projections around attention; queries come from the block, keys and values also from the context."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        d, h, bias = spec.hidden_size, spec.head_dim, spec.attention_bias
        self.head_dim = h
        self.q_proj = nn.Linear(d, spec.num_heads * h, bias=bias)
        self.k_proj = nn.Linear(d, spec.num_kv_heads * h, bias=bias)
        self.v_proj = nn.Linear(d, spec.num_kv_heads * h, bias=bias)
        self.o_proj = nn.Linear(spec.num_heads * h, d, bias=bias)
        self.q_norm = nn.RMSNorm(h, spec.rms_norm_eps) if spec.qk_norm else None
        self.k_norm = nn.RMSNorm(h, spec.rms_norm_eps) if spec.qk_norm else None
        self.stacked: tuple[Stacked, Stacked] | None = None  # see fused_block

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor], number: int, attend: Attend) -> Tensor:
        """Float [B, S, d] of normed slots x [B, S, d]."""
        q, k, v = self._projections(x)
        cosine, sine = turns[0][:, None], turns[1][:, None]  # the same for every head
        q = rotate(self._heads(q, self.q_norm), cosine, sine)
        k = rotate(self._heads(k, self.k_norm), cosine, sine)
        out = attend(number, q, k, self._heads(v, None))
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def keys_values(self, context: Tensor, turns: tuple[Tensor, Tensor]) -> KeysValues:
        """Keys and values [B, G, T, h] of context tokens [B, T, d]."""
        if self.stacked is None:
            k, v = self.k_proj(context), self.v_proj(context)
        else:
            sizes = [self.k_proj.out_features, self.v_proj.out_features]
            k, v = self.stacked[1].shares(context, sizes)
        cosine, sine = turns[0][:, None], turns[1][:, None]
        return rotate(self._heads(k, self.k_norm), cosine, sine), self._heads(v, None)

    def _projections(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.stacked is None:
            return self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.stacked[0].shares(x, [p.out_features for p in (self.q_proj, self.k_proj, self.v_proj)])

    def _heads(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        """[B, heads, S, h] of [B, S, heads * h]."""
        x = x.unflatten(-1, (-1, self.head_dim))
        return (x if norm is None else norm(x)).transpose(1, 2)


class GatedMLP(nn.Module):
    """SwiGLU (Shazeer, arXiv 2002.05202)."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        d, i = spec.hidden_size, spec.intermediate_size
        self.gate_proj = nn.Linear(d, i, bias=False)
        self.up_proj = nn.Linear(d, i, bias=False)
        self.down_proj = nn.Linear(i, d, bias=False)
        self.stacked: Stacked | None = None  # see fused_block

    def forward(self, x: Tensor) -> Tensor:
        """Float [..., d]."""
        if self.stacked is None:
            gate, up = self.gate_proj(x), self.up_proj(x)
        else:
            gate, up = self.stacked.shares(x, [self.gate_proj.out_features] * 2)
        return self.down_proj(F.silu(gate) * up)
