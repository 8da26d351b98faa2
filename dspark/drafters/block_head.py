"""What turns a block's hidden states into logits, token after token, for the rows still going."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dspark.drafters.block_model import BlockBackbone


class BlockSteps:
    """One draft under way: the rows still going, and what the sequential head carries along.

    The LM head runs once, when this is made, over the slots that are planned.

    Args:
        model: the heads.
        hidden: float [R, D, d], outputs of the slots that draft.
        anchors: R tokens, in the target's vocabulary.
        depths: R plans in [1, D].
    """

    def __init__(self, model: BlockBackbone, hidden: Tensor, anchors: list[int], depths: list[int]) -> None:
        self._model = model
        device = hidden.device
        width, ends = hidden.shape[1], list(itertools.accumulate(depths))
        planned = [row * width + slot for row, depth in enumerate(depths) for slot in range(depth)]
        self._hidden = hidden.flatten(0, 1)[torch.tensor(planned, device=device)]  # [M, d]
        self._base = model.lm_head(self._hidden).float()  # [M, W]
        self._at = torch.tensor([0, *ends[:-1]], device=device)  # each row's slot among the M
        self._previous = torch.tensor(anchors, device=device)
        self._state = None
        if model.markov_head is not None:
            self._state = model.markov_head.initial_state(len(depths), hidden)
        self._embed()

    def _embed(self) -> None:
        head = self._model.markov_head
        self._slot = self._hidden[self._at]
        self._embedded = None if head is None else head.embed(self._previous)

    def logits(self) -> Tensor:
        """Float32 [R, W] of the next token of every row still going."""
        head, base = self._model.markov_head, self._base[self._at]
        if head is None:
            return base
        assert self._embedded is not None
        assert self._state is not None
        out, self._state = head.step(self._slot, self._embedded, self._state)
        return base + head.markov_w2(out)

    def confidence(self) -> Tensor:
        """Float32 [R]: the chance that the next token is accepted, judged without looking at it."""
        head = self._model.confidence_head
        assert head is not None, "no confidence head"
        return torch.sigmoid(head(self._slot, self._embedded).float())

    def advance(self, drawn: Tensor, goes_on: Tensor) -> None:
        """Go one slot further with the tokens drawn int [R], in rows where ``goes_on`` bool [R]."""
        device = self._at.device
        keep = goes_on.nonzero().squeeze(1).to(device)
        self._previous = drawn.to(device)[keep]
        self._at = self._at[keep] + 1
        if self._state is not None:
            self._state = self._state[keep]
        self._embed()
