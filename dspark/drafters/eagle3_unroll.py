"""The chains that an EAGLE-3 head drafts, computed for many anchors at once and with gradients.

In a chain, the head's own output stands where the target's feature does not exist yet. Training
unrolls that ("training-time test", Li et al., arXiv 2503.01840): step j of a chain attends to the
true pairs before its anchor and to the chain's own pairs, exactly as it will when drafting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.drafters.eagle3_model import Eagle3Model


def unroll(model: Eagle3Model, features: Tensor, token_ids: Tensor, anchors: Tensor, steps: int) -> Tensor:
    """Float [B, A, S, d]: what ``lm_head`` reads for the token at anchor + 1 + k, k from 0 to S - 1.

    An anchor at position s is the last committed token: the chain starts from the features before s,
    and is fed the sequence's own tokens s, s + 1, ... in place of drafts.

    Args:
        model: the head.
        features: float [B, T, n * d] of the target.
        token_ids: int [B, T]; what follows a row's end does not reach the anchors before it.
        anchors: int [B, A], positions from 1 to T - S.
        steps: S, the length of the chains.

    Raises:
        ValueError: an anchor leaves no pair before it, or no tokens for its chain.
    """
    length = token_ids.shape[1]
    if steps < 1 or bool(((anchors < 1) | (anchors + steps > length)).any()):
        raise ValueError(
            f"anchors must be in [1, {length - steps}] for {steps} steps of {length} tokens, and steps >= 1, "
            f"got anchors {int(anchors.min())} to {int(anchors.max())}"
        )
    g = model.fuse(features[:, :-1])
    pairs = model.pairs(g, token_ids[:, 1:])
    positions = torch.arange(length - 1, device=token_ids.device)
    keys, values = model.keys_values(pairs, model.rotary(positions, g.dtype))
    rows = torch.arange(token_ids.shape[0], device=token_ids.device)[:, None]
    last = anchors - 1  # the pair that a chain starts from
    is_before = positions <= last[..., None]  # [B, A, P]
    g, pairs = g[rows, last], pairs[rows, last]
    own: list[tuple[Tensor, Tensor]] = []
    outputs = []
    for step in range(steps):
        turns = model.rotary(last + step, g.dtype)
        if step > 0:
            pairs = model.pairs(g, token_ids[rows, anchors + step])
            own.append(model.keys_values(pairs, turns))
        mixed = _attend(model.queries(pairs, turns), keys, values, is_before, own)
        normed, g = model.finished(model.attended(g, pairs, mixed))
        outputs.append(normed)
    return torch.stack(outputs, 2)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, is_before: Tensor, own: list[tuple[Tensor, Tensor]]
) -> Tensor:
    """Float [B, A, H, h] of queries [B, A, H, h].

    Args:
        queries: one pair an anchor.
        keys: float [B, P, G, h] of the true pairs.
        values: float [B, P, G, h].
        is_before: bool [B, A, P].
        own: keys and values [B, A, G, h] of the chains' earlier steps and this one.
    """
    num_true, num_groups, size = keys.shape[1:]
    grouped = queries.unflatten(2, (num_groups, -1)) * size**-0.5  # [B, A, G, H / G, h]
    scores = torch.einsum("bagrh,bpgh->bagrp", grouped, keys)
    scores = scores.masked_fill(~is_before[:, :, None, None], -torch.inf)
    if own:
        own_keys = torch.stack([k for k, _ in own], 3)  # [B, A, G, S, h]
        scores = torch.cat([scores, torch.einsum("bagrh,bagsh->bagrs", grouped, own_keys)], -1)
    weights = torch.softmax(scores.float(), -1).to(values.dtype)
    mixed = torch.einsum("bagrp,bpgh->bagrh", weights[..., :num_true], values)
    if own:
        own_values = torch.stack([v for _, v in own], 3)
        mixed = mixed + torch.einsum("bagrs,bagsh->bagrh", weights[..., num_true:], own_values)
    return mixed.flatten(2, 3)
