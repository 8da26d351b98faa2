"""The heads of DSpark (arXiv 2607.05147): a sequential one over a block's drafts, and a confidence.

A block's slots are computed together, so no slot knows what the others draw. The Markov head adds
to each slot's logits what the token drawn before it makes likely: a product of two thin matrices.
The confidence head estimates how likely a draft is accepted, given that those before it were; it
sees the token before and not the draft itself, so that a cut by it leaves the output law alone.

Shapes: ``d`` hidden size, ``r`` rank, ``V`` the target's vocabulary, ``W`` the drafter's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from dspark.drafters.spec import DraftSpec


class MarkovHead(nn.Module):
    """What the token before adds to a slot's logits: ``markov_w2`` of r numbers made from it.

    ``vanilla`` takes the token's embedding itself, ``gated`` scales it by what the slot's hidden
    state says, and ``rnn`` carries a state through the block. Parameters are named as in DeepSpec's
    checkpoints.
    """

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        d, r = spec.hidden_size, spec.markov_rank
        self.kind, self.rank = spec.markov_head_type, r
        self.markov_w1 = nn.Embedding(spec.vocab_size, r)  # by ids of the target's vocabulary
        self.markov_w2 = nn.Linear(r, spec.draft_vocab_size, bias=False)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(d + r, r)
        if self.kind == "rnn":
            self.joint_proj = nn.Linear(2 * r + d, 3 * r)

    def embed(self, previous: Tensor) -> Tensor:
        """Float [..., r] of the tokens before, int [...], in the target's vocabulary."""
        return self.markov_w1(previous)

    def initial_state(self, num_rows: int, like: Tensor) -> Tensor:
        """Float [R, r]: the state before the first draft of a block; only ``rnn`` changes it."""
        return like.new_zeros(num_rows, self.rank)

    def step(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Float [..., r], which ``markov_w2`` turns into a slot's bias, and the state after the slot.

        Args:
            hidden: float [..., d], the slot's output of the backbone.
            embedded: float [..., r], :meth:`embed` of the token before.
            state: float [..., r].
        """
        if self.kind == "vanilla":
            return embedded, state
        if self.kind == "gated":
            gate = torch.sigmoid(self.gate_proj(torch.cat([hidden, embedded], -1)))
            return gate * embedded, state
        joint = self.joint_proj(torch.cat([state, embedded, hidden], -1))
        gate, candidate, out = joint.chunk(3, -1)
        gate = torch.sigmoid(gate)
        state = gate * state + (1 - gate) * torch.tanh(candidate)
        return torch.tanh(out), state

    def along(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Float [..., K, r] of whole blocks whose tokens are known, as in training.

        Args:
            hidden: float [..., K, d], the slots that predict, in order.
            previous: int [..., K], the token before each.
        """
        embedded = self.embed(previous)
        if self.kind != "rnn":
            return self.step(hidden, embedded, embedded)[0]
        state = torch.zeros_like(embedded[..., 0, :])
        outs = []
        for k in range(hidden.shape[-2]):
            out, state = self.step(hidden[..., k, :], embedded[..., k, :], state)
            outs.append(out)
        return torch.stack(outs, -2)


class ConfidenceHead(nn.Module):
    """Logit of the chance that a slot's draft is accepted, given that the drafts before it were."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        self.with_markov = spec.confidence_with_markov
        width = spec.hidden_size + (spec.markov_rank if self.with_markov else 0)
        self.proj = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, embedded: Tensor | None) -> Tensor:
        """Float [...]: a logit a slot.

        Args:
            hidden: float [..., d], the slots' outputs of the backbone.
            embedded: float [..., r], the Markov head's embedding of the token before each; read only
                by a head that was made for it.
        """
        if self.with_markov:
            assert embedded is not None, "this confidence head reads the Markov embedding"
            hidden = torch.cat([hidden, embedded], -1)
        return self.proj(hidden).squeeze(-1)
