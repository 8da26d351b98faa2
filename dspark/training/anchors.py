"""Where blocks begin in an answer, and what they must guess.

An anchor is a token of the answer that is followed by another one. A block that starts there guesses
the tokens behind it, up to the answer's end. The last token of the prompt is no anchor: when
drafting, the first anchor is the first token of the answer, which the prefill gives.
"""

from __future__ import annotations

import torch
from torch import Tensor


def all_anchors(num_prompt: int, length: int) -> Tensor:
    """Int [A]: every position of the answer that has a token behind it.

    Args:
        num_prompt: tokens of the prompt.
        length: of prompt and answer.
    """
    return torch.arange(num_prompt, length - 1)


def draw_anchors(num_prompt: int, length: int, num_anchors: int, generator: torch.Generator) -> Tensor:
    """Int [<= num_anchors], ascending: drawn from :func:`all_anchors` without replacement."""
    every = all_anchors(num_prompt, length)
    chosen = torch.randperm(len(every), generator=generator)[:num_anchors]
    return every[chosen.sort().values]


def labels_after(token_ids: Tensor, anchors: Tensor, num_drafts: int) -> tuple[Tensor, Tensor]:
    """Int [A, K]: the tokens behind each anchor, 0 past the end; and bool [A, K]: which there are.

    Args:
        token_ids: int [T], prompt and answer.
        anchors: int [A].
        num_drafts: K.
    """
    at = anchors[:, None] + 1 + torch.arange(num_drafts)
    exists = at < len(token_ids)
    return torch.where(exists, token_ids[at.clamp(max=len(token_ids) - 1)], 0), exists
