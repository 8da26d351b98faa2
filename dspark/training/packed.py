"""The hidden states of many blocks in many answers at once, with gradients.

All blocks of a batch lie in one row of slots, so that every linear layer is one product; attention
alone goes answer by answer. A slot sees the context tokens before its anchor and the slots of its own
block. The two parts are scored apart, because nearly all pairs of slots are of different blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dspark.drafters.eagle3_unroll import unroll

if TYPE_CHECKING:
    from dspark.drafters.block_model import Attend, BlockBackbone, KeysValues
    from dspark.drafters.eagle3_model import Eagle3Model
    from dspark.training.batches import Batch


def block_hidden(model: BlockBackbone, batch: Batch) -> Tensor:
    """Float [A, K, d]: the slots' outputs; slot k guesses the token at anchor + 1 + k."""
    num_slots = batch.labels.shape[1]
    device = batch.token_ids.device
    positions = torch.cat([torch.arange(length, device=device) for length in batch.lengths])
    context = model.context_kv(model.context(batch.features)[None], positions[None])
    slots = model.slots(batch.previous[:, 0], num_slots)
    at = batch.anchors[:, None] + torch.arange(num_slots, device=device)
    hidden = model.run(slots.view(1, -1), at.view(1, -1), packed_attention(context, batch))
    return hidden.view(*slots.shape, -1)


def packed_attention(context: list[KeysValues], batch: Batch) -> Attend:
    """Attention of all blocks' slots [1, A * K] over their own answers' context and their own block."""
    num_slots = batch.labels.shape[1]
    anchors = batch.anchors.split(batch.num_blocks)

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        sizes = [count * num_slots for count in batch.num_blocks]
        q_of, k_of, v_of = (part[0].split(sizes, 1) for part in (q, k, v))
        keys, values = (part[0].split(batch.lengths, 1) for part in context[layer])
        mixed = [
            _of_answer(anchors[i], q_of[i], k_of[i], v_of[i], keys[i], values[i], num_slots)
            for i in range(len(sizes))
        ]
        return torch.cat(mixed, 1)[None]

    return attend


def _of_answer(
    anchors: Tensor, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, num_slots: int
) -> Tensor:
    """Float [H, S, h] of the slots [H, S, h] of one answer's blocks.

    Args:
        anchors: int [A].
        q: float [H, S, h], S = A * K.
        k: float [G, S, h] of the slots.
        v: float [G, S, h] of the slots.
        keys: float [G, T, h] of the context.
        values: float [G, T, h] of the context.
        num_slots: K.
    """
    num_groups, _, size = k.shape
    blocks = (len(anchors), num_slots)
    length = int(anchors.max())  # no slot sees what comes later
    keys, values = keys[:, :length], values[:, :length]
    q = q.view(num_groups, -1, *blocks, size) * size**-0.5  # [G, R, A, K, h]
    own_k, own_v = (part.view(num_groups, 1, *blocks, size) for part in (k, v))
    scores = (q.flatten(1, 3) @ keys.transpose(1, 2)).view(*q.shape[:4], length)
    is_later = torch.arange(length, device=anchors.device) >= anchors[:, None]
    scores = scores.masked_fill(is_later[:, None], -torch.inf)
    own = q @ own_k.transpose(-1, -2)  # [G, R, A, K, K]
    weights = torch.softmax(torch.cat([scores, own], -1).float(), -1).to(v.dtype)
    seen, among = weights.split([length, num_slots], -1)
    mixed = (seen.flatten(1, 3) @ values).view(q.shape) + among @ own_v
    return mixed.flatten(2, 3).flatten(0, 1)


def chain_hidden(model: Eagle3Model, batch: Batch) -> Tensor:
    """Float [A, K, d] of EAGLE-3 chains, which are fed the answer's own tokens (training-time test)."""
    num_steps = batch.labels.shape[1]
    longest, most = max(batch.lengths) + num_steps, max(batch.num_blocks)
    token_ids = batch.token_ids.new_zeros(len(batch.lengths), longest)
    features = batch.features.new_zeros(len(batch.lengths), longest, batch.features.shape[1])
    anchors = batch.anchors.new_ones(len(batch.lengths), most)
    is_block = torch.zeros_like(anchors, dtype=torch.bool)
    rows = zip(
        batch.token_ids.split(batch.lengths),
        batch.features.split(batch.lengths),
        batch.anchors.split(batch.num_blocks),
        strict=True,
    )
    for row, (ids, states, starts) in enumerate(rows):
        token_ids[row, : len(ids)] = ids
        features[row, : len(ids)] = states
        anchors[row, : len(starts)] = starts
        is_block[row, : len(starts)] = True
    return unroll(model, features, token_ids, anchors, num_steps)[is_block]
