"""Tiny random block drafters, and what they should draft: a plain re-implementation without cache or batch.

The plain forward is written from the papers' semantics, one row, one head and one slot at a time, in
float64, and shares no code with the package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dspark.drafters.block_model import BlockBackbone
from dspark.drafters.spec import DraftSpec

SPEC = DraftSpec(
    kind="dspark",
    block_size=5,
    feature_layers=(0, 1),
    num_layers=2,
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    intermediate_size=48,
    vocab_size=61,
    draft_vocab_size=61,
    num_target_layers=3,
    rope={"rope_type": "default", "rope_theta": 100.0},
    max_context=256,
    mask_token_id=7,
    markov_rank=6,
    confidence_head=True,
    confidence_with_markov=True,
)
PLAIN_HEADS = {"markov_rank": 0, "confidence_head": False, "confidence_with_markov": False}
VARIANTS = {
    "vanilla": SPEC,
    "gated": replace(SPEC, markov_head_type="gated"),
    "rnn": replace(SPEC, markov_head_type="rnn"),
    "none": replace(SPEC, kind="dflash", **PLAIN_HEADS),
    "confidence_of_hidden_alone": replace(SPEC, confidence_with_markov=False),
    "llama_layers": replace(SPEC, qk_norm=False, attention_bias=True),
    "reduced_vocabulary": replace(SPEC, draft_vocab_size=20),
    "unused_anchor": replace(SPEC, kind="dflash", samples_from_anchor=False, **PLAIN_HEADS),
    "window_of_slots": replace(SPEC, windows=(4, None), causal=(True, False)),
    "window_of_anchor": replace(SPEC, windows=(None, 4), window_from_anchor=True),
    "scaled_rope": replace(SPEC, rope={"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}),
}


def random_backbone(spec: DraftSpec, seed: int = 0, tables: tuple[Tensor, Tensor] | None = None):
    """A model whose every weight matters: norms off 1, biases off 0, activations of size 1."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, std: float = 1.0) -> Tensor:
        return std * torch.randn(shape, generator=generator)

    model = BlockBackbone(spec)
    d = spec.hidden_size
    embedding, head = tables or (normal(spec.vocab_size, d), normal(spec.vocab_size, d, std=2 / d**0.5))
    model.share(embedding, None if spec.has_reduced_vocab else head)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name == "embed_tokens.weight" or (name == "lm_head.weight" and not spec.has_reduced_vocab):
                continue
            if name.endswith("norm.weight"):
                parameter.copy_(1 + normal(*parameter.shape, std=0.2))
            elif parameter.dim() == 1:
                parameter.copy_(normal(*parameter.shape, std=0.3))
            else:
                gain = 1.0 if "markov_w1" in name else 2.0
                parameter.copy_(normal(*parameter.shape, std=gain / parameter.shape[1] ** 0.5))
        if "markov_head.markov_w1.weight" in dict(model.named_parameters()):
            model.markov_head.markov_w1.weight.copy_(normal(spec.vocab_size, spec.markov_rank))
        if model.d2t is not None:
            ids = torch.randperm(spec.vocab_size, generator=generator)[: spec.draft_vocab_size].sort().values
            model.d2t.copy_(ids - torch.arange(spec.draft_vocab_size))
    return model.eval().requires_grad_(False)


@dataclass(frozen=True)
class Plain:
    """The reference: a dictionary of tensors and a spec."""

    tensors: dict[str, Tensor]
    spec: DraftSpec

    @classmethod
    def of(cls, model: BlockBackbone) -> Plain:
        return cls({name: tensor.double() for name, tensor in model.state_dict().items()}, model.spec)

    def hidden(self, features: Tensor, anchor: int, num_slots: int) -> Tensor:
        """Outputs [S, d] of a block behind a context with ``features`` [s, n * d]."""
        w, spec = self.tensors, self.spec
        context = self._norm(features.double() @ w["fc.weight"].T, "hidden_norm")
        s = context.shape[0]
        ids = [anchor] + [spec.mask_token_id] * (num_slots - 1)
        x = torch.stack([w["embed_tokens.weight"][token] for token in ids])
        for i in range(spec.num_layers):
            at = f"layers.{i}."
            h = self._norm(x, at + "input_layernorm")
            keys = self._heads(torch.cat([context, h]), at, "k", spec.num_kv_heads, range(s + num_slots))
            values = self._project(torch.cat([context, h]), at, "v").unflatten(-1, (spec.num_kv_heads, -1))
            queries = self._heads(h, at, "q", spec.num_heads, range(s, s + num_slots))
            out = torch.zeros(num_slots, spec.num_heads, spec.head_dim, dtype=torch.float64)
            for slot in range(num_slots):
                seen = [p for p in range(s + num_slots) if self._sees(i, s, s + slot, p)]
                for head in range(spec.num_heads):
                    group = head // (spec.num_heads // spec.num_kv_heads)
                    scores = keys[seen, group] @ queries[slot, head] / spec.head_dim**0.5
                    out[slot, head] = torch.softmax(scores, 0) @ values[seen, group]
            x = x + self._project(out.flatten(1), at, "o")
            h = self._norm(x, at + "post_attention_layernorm")
            gate, up = h @ w[at + "mlp.gate_proj.weight"].T, h @ w[at + "mlp.up_proj.weight"].T
            x = x + (gate * torch.sigmoid(gate) * up) @ w[at + "mlp.down_proj.weight"].T
        return self._norm(x, "norm")

    def step(self, hidden: Tensor, previous: int, state: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits [W] of a slot, the state after it, and its confidence."""
        w, spec = self.tensors, self.spec
        logits = w["lm_head.weight"] @ hidden
        e = w["markov_head.markov_w1.weight"][previous] if spec.markov_rank else None
        if e is not None:
            out = e
            if spec.markov_head_type == "gated":
                z = (
                    w["markov_head.gate_proj.weight"] @ torch.cat([hidden, e])
                    + w["markov_head.gate_proj.bias"]
                )
                out = torch.sigmoid(z) * e
            if spec.markov_head_type == "rnn":
                joint = torch.cat([state, e, hidden])
                z = w["markov_head.joint_proj.weight"] @ joint + w["markov_head.joint_proj.bias"]
                r = spec.markov_rank
                gate = torch.sigmoid(z[:r])
                state = gate * state + (1 - gate) * torch.tanh(z[r : 2 * r])
                out = torch.tanh(z[2 * r :])
            logits = logits + w["markov_head.markov_w2.weight"] @ out
        confidence = None
        if spec.confidence_head:
            read = torch.cat([hidden, e]) if spec.confidence_with_markov else hidden
            z = w["confidence_head.proj.weight"][0] @ read + w["confidence_head.proj.bias"][0]
            confidence = torch.sigmoid(z)
        return logits, state, confidence

    def q_and_confidence(self, features: Tensor, anchor: int, drafted: list[int], temperature: float):
        """q [K, V] and confidences [K] of the positions of a draft, given its tokens."""
        spec = self.spec
        first = 0 if spec.samples_from_anchor else 1
        hidden = self.hidden(features, anchor, spec.block_size + first)
        state = torch.zeros(spec.markov_rank, dtype=torch.float64)
        qs, confidences = [], []
        for k, previous in enumerate([anchor, *drafted[:-1]]):
            logits, state, confidence = self.step(hidden[first + k], previous, state)
            q = torch.zeros(spec.vocab_size, dtype=torch.float64)
            q[self.target_ids()] = torch.softmax(logits / temperature, 0)
            qs.append(q)
            confidences.append(confidence)
        return torch.stack(qs), confidences

    def target_ids(self) -> list[int]:
        """The target's id of every draft id."""
        if "d2t" not in self.tensors:
            return list(range(self.spec.vocab_size))
        return [i + int(offset) for i, offset in enumerate(self.tensors["d2t"].tolist())]

    def _sees(self, layer: int, anchor: int, query: int, key: int) -> bool:
        spec = self.spec
        window = spec.windows[layer] if spec.windows else None
        if spec.causal and spec.causal[layer] and key > query:
            return False
        if window is None:
            return True
        return key >= anchor - window if spec.window_from_anchor else abs(query - key) < window

    def _project(self, x: Tensor, at: str, name: str) -> Tensor:
        weight = self.tensors[f"{at}self_attn.{name}_proj.weight"]
        return x @ weight.T + self.tensors.get(f"{at}self_attn.{name}_proj.bias", torch.zeros(1))

    def _heads(self, x: Tensor, at: str, name: str, num_heads: int, positions) -> Tensor:
        """[T, heads, h], normed and turned by the positions."""
        heads = self._project(x, at, name).unflatten(-1, (num_heads, -1))
        if self.spec.qk_norm:
            heads = self._norm(heads, f"{at}self_attn.{name}_norm")
        half, theta = self.spec.head_dim // 2, self.spec.rope["rope_theta"]
        out = torch.empty_like(heads)
        for row, position in enumerate(positions):
            position = position / self.spec.rope.get("factor", 1.0)
            for i in range(half):
                angle = position * theta ** (-i / half)
                a, b = heads[row, :, i], heads[row, :, i + half]
                out[row, :, i] = a * math.cos(angle) - b * math.sin(angle)
                out[row, :, i + half] = b * math.cos(angle) + a * math.sin(angle)
        return out

    def _norm(self, x: Tensor, name: str) -> Tensor:
        root = (x.pow(2).mean(-1, keepdim=True) + self.spec.rms_norm_eps).sqrt()
        return x / root * self.tensors[f"{name}.weight"]
