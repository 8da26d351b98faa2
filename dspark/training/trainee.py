"""A drafter in training: the module, the target's head, and the step from a batch to the losses' sums."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dspark.drafters.block_model import BlockBackbone
from dspark.drafters.eagle3_model import Eagle3Model
from dspark.training.fused_loss import learn
from dspark.training.losses import Guesses, LossSums, Measured, measure, position_weights, sum_up
from dspark.training.packed import block_hidden, chain_hidden
from dspark.training.vocabulary import draft_ids_of

if TYPE_CHECKING:
    from dspark.drafters.spec import DraftSpec
    from dspark.training.batches import Batch
    from dspark.training.settings import LossWeights

DraftModule = BlockBackbone | Eagle3Model


class Trainee(nn.Module):
    """What is trained; its parameters are the drafter's.

    Args:
        drafter: a block backbone or an EAGLE-3 head, with the target's tables in it.
        head: the target's output head [V, d].
        weights: of the losses.
    """

    def __init__(self, drafter: DraftModule, head: Tensor, weights: LossWeights) -> None:
        super().__init__()
        self.drafter = drafter
        self.weights = weights
        spec = drafter.spec
        ids = drafter.target_ids(torch.arange(spec.draft_vocab_size, device=head.device))
        # buffers move with the module and are no part of what is saved
        self.register_buffer("teacher", head.detach()[ids].clone(), persistent=False)
        self.register_buffer("draft_ids", draft_ids_of(ids.cpu(), spec.vocab_size), persistent=False)

    @property
    def spec(self) -> DraftSpec:
        """The drafter's."""
        return self.drafter.spec

    def forward(self, batch: Batch) -> LossSums:
        """The sums of a batch, with gradients."""
        guesses = self._guesses(batch)
        of_position = position_weights(batch.exists, self.weights.decay)
        learned, measured = learn(guesses, of_position.flatten(), self.weights)
        measured = _only_existing(measured, batch.exists)
        return sum_up(measured, batch.exists, guesses.confidence, self.weights, learned)

    def measured(self, batch: Batch) -> tuple[Measured, Tensor | None]:
        """Each row's terms, block after block, and the confidence head's logits [A * K]."""
        guesses = self._guesses(batch)
        return _only_existing(measure(guesses), batch.exists), guesses.confidence

    def _guesses(self, batch: Batch) -> Guesses:
        drafter = self.drafter
        if isinstance(drafter, Eagle3Model):
            rows, markov, confidence = chain_hidden(drafter, batch), None, None
        else:
            hidden = block_hidden(drafter, batch)
            rows, markov, confidence = _with_heads(drafter, hidden, batch.previous)
        return Guesses(
            hidden=rows.flatten(0, 1),
            head=drafter.lm_head.weight,
            markov=markov,
            teacher_hidden=batch.hidden.flatten(0, 1),
            teacher=self.get_buffer("teacher"),
            log_normaliser=batch.log_normaliser.flatten(),
            labels=self.get_buffer("draft_ids")[batch.labels].flatten(),
            confidence=confidence,
        )


def _with_heads(
    drafter: BlockBackbone, hidden: Tensor, previous: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Rows [A, K, d + r], the Markov head's output weight [W, r], and confidence [A * K]."""
    rows, weight, embedded = hidden, None, None
    markov = drafter.markov_head
    if markov is not None:
        embedded = markov.embed(previous)
        rows = torch.cat([hidden, markov.along(hidden, previous)], -1)
        weight = markov.markov_w2.weight
    head = drafter.confidence_head
    confidence = None if head is None else head(hidden, embedded).flatten()
    return rows, weight, confidence


def _only_existing(measured: Measured, exists: Tensor) -> Measured:
    """A guess without a label is no match, whatever stands there."""
    return replace(measured, is_match=measured.is_match & exists.flatten())
