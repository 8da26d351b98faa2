"""Tiny EAGLE-3 heads, and what they compute written out anew: one row, no cache, plain loops, float64.

The reference follows the published description (Li et al., arXiv 2503.01840, and DeepSpec's naming): pair
i is (g_i, token_{i+1}) at rotary position i; [norm(embedding); norm(g)] goes through causal attention;
the residual is g; y_i predicts token_{i+2} and is the next g of a chain.
"""

from __future__ import annotations

import math

import torch

from dspark.drafters.eagle3_model import Eagle3Model
from dspark.drafters.eagle3_norms import Eagle3Norms
from dspark.drafters.spec import DraftSpec

WIDTH, HEAD, VOCAB, LAYERS = 32, 12, 40, (0, 2)
DRAFT_TOKENS = torch.tensor([1, 2, 5, 7, 11, 12, 20, 21, 30, 39])
"""Of the target's 40, those that a reduced vocabulary has."""

NORMS = {
    "plain": Eagle3Norms(),
    "before_residual": Eagle3Norms(before_residual=True),
    "before_fc": Eagle3Norms(before_fc=True),
    "each_feature": Eagle3Norms(each_feature=True, output=True),
}


def tiny_spec(**changes) -> DraftSpec:
    values = {
        "kind": "eagle3",
        "block_size": 4,
        "feature_layers": LAYERS,
        "num_layers": 1,
        "hidden_size": WIDTH,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": HEAD,
        "intermediate_size": 48,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB,
        "num_target_layers": 3,
        "max_context": 256,
        "qk_norm": False,
    }
    return DraftSpec(**{**values, **changes})


def random_head(spec: DraftSpec, seed: int = 0, d2t: torch.Tensor | None = None) -> Eagle3Model:
    """A head whose norms are not 1 and whose logits have a spread of some units.

    Args:
        spec: of the head.
        seed: of the weights.
        d2t: of a reduced vocabulary; that of DRAFT_TOKENS by default.
    """
    generator = torch.Generator().manual_seed(seed)
    model = Eagle3Model(spec)
    if spec.has_reduced_vocab:
        model.d2t = DRAFT_TOKENS - torch.arange(len(DRAFT_TOKENS)) if d2t is None else d2t
    table = torch.randn(spec.vocab_size, spec.hidden_size, generator=generator)
    head = torch.randn(spec.vocab_size, spec.hidden_size, generator=generator) / 3
    model.share(table, None if spec.has_reduced_vocab else head)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in ("embed_tokens.weight",) or (name == "lm_head.weight" and not spec.has_reduced_vocab):
                continue
            noise = torch.randn(weight.shape, generator=generator)
            if weight.dim() == 2:
                weight.copy_(noise / weight.shape[1] ** 0.5)
            else:
                weight.copy_(1 + 0.2 * noise if "norm" in name else 0.2 * noise)
    return model.requires_grad_(False)


class Reference:
    """The head's formulas on a model's weights, in float64."""

    def __init__(self, model: Eagle3Model) -> None:
        self.spec = model.spec
        self.w = {name: tensor.double() for name, tensor in model.state_dict().items()}

    def norm(self, x, name):
        scale = (x.pow(2).mean(-1, keepdim=True) + self.spec.rms_norm_eps).rsqrt()
        return x * scale * self.w[name]

    def linear(self, x, name):
        out = x @ self.w[f"{name}.weight"].T
        return out + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else out

    def fuse(self, features):
        """g [T, d] of features [T, n * d]."""
        features = features.double()
        norms = self.spec.norms
        if norms.before_fc:
            features = self.norm(features, "input_norm.weight")
        if norms.each_feature:
            parts = features.split(self.spec.hidden_size, -1)
            parts = [self.norm(part, f"fc_norm.{i}.weight") for i, part in enumerate(parts)]
            features = torch.cat(parts, -1)
        return self.linear(features, "fc")

    def turned(self, x, position):
        """One head [h] turned: element j pairs with j + h / 2, by the angle position * theta^(-2j / h)."""
        half = HEAD // 2
        out = torch.empty_like(x)
        for j in range(half):
            angle = position * self.spec.rope["rope_theta"] ** (-2 * j / HEAD)
            cos, sin = math.cos(angle), math.sin(angle)
            out[j] = x[j] * cos - x[half + j] * sin
            out[half + j] = x[half + j] * cos + x[j] * sin
        return out

    def head(self, x, kind, index, position):
        """Head ``index`` of the projection ``kind`` of a normed pair x [2d]."""
        out = self.linear(x, f"layers.0.self_attn.{kind}_proj")[index * HEAD : (index + 1) * HEAD]
        if kind == "v":
            return out
        if self.spec.qk_norm:
            out = self.norm(out, f"layers.0.self_attn.{kind}_norm.weight")
        return self.turned(out, position)

    def last_output(self, gs, tokens):
        """y [d] of the last pair (gs[-1], tokens[-1]) over all pairs; pair i lies at position i."""
        inputs = []
        for g, token in zip(gs, tokens, strict=True):
            embedded = self.norm(self.w["embed_tokens.weight"][token], "layers.0.input_layernorm.weight")
            inputs.append(torch.cat([embedded, self.norm(g, "layers.0.hidden_norm.weight")]))
        mixed = []
        last = len(inputs) - 1
        for index in range(self.spec.num_heads):
            group = index // (self.spec.num_heads // self.spec.num_kv_heads)
            query = self.head(inputs[last], "q", index, last)
            keys = torch.stack([self.head(x, "k", group, i) for i, x in enumerate(inputs)])
            values = torch.stack([self.head(x, "v", group, i) for i, x in enumerate(inputs)])
            mixed.append(torch.softmax(keys @ query / HEAD**0.5, 0) @ values)
        residual = inputs[last][WIDTH:] if self.spec.norms.before_residual else gs[-1]
        x = residual + self.linear(torch.cat(mixed), "layers.0.self_attn.o_proj")
        h = self.norm(x, "layers.0.post_attention_layernorm.weight")
        gate, up = self.linear(h, "layers.0.mlp.gate_proj"), self.linear(h, "layers.0.mlp.up_proj")
        return x + self.linear(gate * torch.sigmoid(gate) * up, "layers.0.mlp.down_proj")

    def chain(self, features, tokens, drafted):
        """Logits [len(drafted) + 1, W] of a chain.

        Args:
            features: [L - 1, n * d] of all committed tokens but the last.
            tokens: L committed ones.
            drafted: what was drawn from each of the logits but the last.
        """
        gs, follow = list(self.fuse(features)), list(tokens[1:])
        logits = []
        for token in (*drafted, None):
            y = self.last_output(gs, follow)
            normed = self.norm(y, "norm.weight")
            logits.append(normed @ self.w["lm_head.weight"].T)
            gs.append(normed if self.spec.norms.output else y)
            follow.append(token)
        return torch.stack(logits)
