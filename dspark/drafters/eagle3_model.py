"""The EAGLE-3 draft head: one decoder layer over pairs of a fused target feature and the next token.

Pair i is (g_i, token_{i+1}) at rotary position i, where g_i is made of the target's features of
position i. The layer attends causally over pairs; its output y_i predicts token_{i+2}, and takes the
place of g_{i+1}, which does not exist yet, in the next pair of a chain (EAGLE-3, Li et al., arXiv
2503.01840). Parameters bear the names of DeepSpec's checkpoints.

Because there is one layer, a pair that nobody predicts from needs its keys and values only:
:meth:`Eagle3Model.keys_values` is all that catching up with committed tokens takes.

Shapes: ``d`` hidden size, ``n`` feature layers, ``H`` query and ``G`` key/value heads of size ``h``,
``R`` pairs that are predicted from, ``C`` keys a row, ``W`` tokens that can be drafted. Leading axes
(``...``) are the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dspark.drafters.block_model import GatedMLP
from dspark.drafters.rotary import Rotary, rotate

if TYPE_CHECKING:
    from dspark.drafters.spec import DraftSpec

Turns = tuple[Tensor, Tensor]
"""Cosine and sine [..., h] of the pairs' positions, from :attr:`Eagle3Model.rotary`."""


class Eagle3Model(nn.Module):
    """Everything of an EAGLE-3 drafter with weights, for training and drafting.

    ``embed_tokens`` and, without a reduced vocabulary, ``lm_head`` are frozen and exist without
    memory (on the meta device) until :meth:`share` puts the target's in their place. ``d2t``
    int64 [W] is there for a reduced vocabulary: draft id + d2t[draft id] is the target's id.

    Raises:
        ValueError: not the spec of an EAGLE-3 head, of more than one layer, or without feature layers.
    """

    d2t: Tensor | None

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        if spec.kind != "eagle3":
            raise ValueError(f"an EAGLE-3 head needs a spec of kind eagle3, got {spec.kind}")
        if not spec.feature_layers:
            raise ValueError(
                "an EAGLE-3 head needs feature layers, and its file counts them from the target's layers: "
                "give their number (num_target_layers), got none"
            )
        if spec.num_layers != 1 or spec.has_windows:
            raise ValueError(
                "an EAGLE-3 head must have 1 layer with full attention, others are not implemented, "
                f"got {spec.num_layers} layers and windows {list(spec.windows)}; use another checkpoint"
            )
        self.spec = spec
        d, eps = spec.hidden_size, spec.rms_norm_eps
        self.embed_tokens = nn.Embedding(spec.vocab_size, d, device="meta")
        head_device = None if spec.has_reduced_vocab else "meta"
        self.lm_head = nn.Linear(d, spec.draft_vocab_size, bias=False, device=head_device)
        self.input_norm = nn.RMSNorm(spec.feature_size, eps) if spec.norms.before_fc else None
        per_layer = [nn.RMSNorm(d, eps) for _ in spec.feature_layers] if spec.norms.each_feature else []
        self.fc_norm = nn.ModuleList(per_layer)
        self.fc = nn.Linear(spec.feature_size, d, bias=False)
        self.layers = nn.ModuleList([Eagle3Layer(spec)])
        self.norm = nn.RMSNorm(d, eps)
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

    @property
    def layer(self) -> Eagle3Layer:
        """The decoder layer, typed."""
        return self.layers[0]  # pyright: ignore[reportReturnType]

    def fuse(self, features: Tensor) -> Tensor:
        """g, float [..., d], of the target's features [..., n * d]."""
        if self.input_norm is not None:
            features = self.input_norm(features)
        elif self.fc_norm:
            parts = features.chunk(len(self.fc_norm), -1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        return self.fc(features)

    def pairs(self, g: Tensor, token_ids: Tensor) -> Tensor:
        """Normed pairs [..., 2d] of g [..., d] and the tokens that follow, int [...] of the target's ids."""
        layer = self.layer
        return torch.cat([layer.input_layernorm(self.embed_tokens(token_ids)), layer.hidden_norm(g)], -1)

    def keys_values(self, pairs: Tensor, turns: Turns) -> tuple[Tensor, Tensor]:
        """Keys, turned, and values [..., G, h] of pairs [..., 2d]."""
        attention = self.layer.self_attn
        keys = attention.heads(attention.k_proj(pairs), attention.k_norm)
        return rotate(keys, *_for_heads(turns)), attention.heads(attention.v_proj(pairs), None)

    def queries(self, pairs: Tensor, turns: Turns) -> Tensor:
        """Queries, turned, [..., H, h] of pairs [..., 2d]."""
        attention = self.layer.self_attn
        return rotate(attention.heads(attention.q_proj(pairs), attention.q_norm), *_for_heads(turns))

    def attended(self, g: Tensor, pairs: Tensor, mixed: Tensor) -> Tensor:
        """y, float [..., d].

        Args:
            g: float [..., d].
            pairs: float [..., 2d], from :meth:`pairs`.
            mixed: float [..., H, h], the attention's mix of values for each query head.
        """
        layer = self.layer
        residual = pairs[..., self.spec.hidden_size :] if self.spec.norms.before_residual else g
        x = residual + layer.self_attn.o_proj(mixed.flatten(-2))
        return x + layer.mlp(layer.post_attention_layernorm(x))

    def step(
        self, g: Tensor, pairs: Tensor, turns: Turns, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> Tensor:
        """y, float [R, d], of one pair a row.

        Args:
            g: float [R, d].
            pairs: float [R, 2d].
            turns: of the pairs' positions.
            keys: float [R, G, C, h] of the row's pairs up to and including this one.
            values: float [R, G, C, h].
            mask: bool [R, 1, 1, C], True where the row has a pair; None: everywhere.
        """
        query = self.queries(pairs, turns)[:, :, None]  # [R, H, 1, h]
        mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
        return self.attended(g, pairs, mixed[:, :, 0])

    def finished(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """What ``lm_head`` reads, [..., d], and what is the next pair's g, [..., d], of y [..., d]."""
        normed = self.norm(y)
        return normed, normed if self.spec.norms.output else y

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Int [...]: the target's ids of draft ids [...]."""
        return draft_ids if self.d2t is None else draft_ids + self.d2t[draft_ids]


class Eagle3Layer(nn.Module):
    """The decoder layer's parameters; :class:`Eagle3Model` says how they work together."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        d, eps = spec.hidden_size, spec.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(d, eps)  # of the token's embedding
        self.hidden_norm = nn.RMSNorm(d, eps)  # of g
        self.self_attn = Eagle3Attention(spec)
        self.post_attention_layernorm = nn.RMSNorm(d, eps)
        self.mlp = GatedMLP(spec)


class Eagle3Attention(nn.Module):
    """Projections; queries, keys and values are made of a whole pair, 2d wide."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        d, h, bias = spec.hidden_size, spec.head_dim, spec.attention_bias
        self.head_dim = h
        self.q_proj = nn.Linear(2 * d, spec.num_heads * h, bias=bias)
        self.k_proj = nn.Linear(2 * d, spec.num_kv_heads * h, bias=bias)
        self.v_proj = nn.Linear(2 * d, spec.num_kv_heads * h, bias=bias)
        self.o_proj = nn.Linear(spec.num_heads * h, d, bias=bias)
        self.q_norm = nn.RMSNorm(h, spec.rms_norm_eps) if spec.qk_norm else None
        self.k_norm = nn.RMSNorm(h, spec.rms_norm_eps) if spec.qk_norm else None

    def heads(self, projected: Tensor, norm: nn.Module | None) -> Tensor:
        """[..., heads, h] of [..., heads * h], each head normed where the model does that."""
        split = projected.unflatten(-1, (-1, self.head_dim))
        return split if norm is None else norm(split)


def _for_heads(turns: Turns) -> Turns:
    """[..., 1, h] each: the same for every head."""
    return turns[0][..., None, :], turns[1][..., None, :]
