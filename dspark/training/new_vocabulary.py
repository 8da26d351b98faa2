"""A trained drafter with another vocabulary: what it knows of the tokens that both have stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from dspark.training.vocabulary import draft_ids_of, offsets_of

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.training.trainee import DraftModule


@torch.no_grad()
def with_vocabulary(drafter: DraftModule, vocabulary: Tensor, head: Tensor) -> DraftModule:
    """The drafter as it is, but for the tokens that it can draft.

    Rows that belong to a token (of the output head, and of what a sequential head adds to its logits) go
    along with it. A token that the drafter did not have gets the target's row of the output head, and
    nothing is added to its logits.

    Args:
        drafter: trained, with the target's embedding.
        vocabulary: int [W], ascending: the target's ids of the tokens that can be drafted from now on.
        head: the target's output head [V, d].
    """
    spec = replace(drafter.spec, draft_vocab_size=len(vocabulary))
    before = drafter.target_ids(torch.arange(drafter.spec.draft_vocab_size, device=head.device))
    place = draft_ids_of(before.cpu(), spec.vocab_size)[vocabulary]  # where a token was, or -1
    is_known = place >= 0
    other = type(drafter)(spec)
    other.share(drafter.embed_tokens.weight, None)
    other = other.to(head.device)
    weights = dict(drafter.named_parameters())
    for name, parameter in other.named_parameters():
        if name == "embed_tokens.weight":
            continue
        weight = weights[name].to(parameter.dtype)
        if weight.shape == parameter.shape:
            parameter.copy_(weight)
            continue
        parameter.copy_(head[vocabulary] if name == "lm_head.weight" else torch.zeros_like(parameter))
        parameter[is_known] = weight[place[is_known]]
    assert other.d2t is not None, "a drafter with a vocabulary of its own"
    other.d2t.copy_(offsets_of(vocabulary))
    return other
