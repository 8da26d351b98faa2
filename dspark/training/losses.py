"""How far guesses are from the target's law, as sums that add up over answers, devices and steps.

Every row is one guessed token: draft k of a block. With q the drafter's law over its W tokens and p the
target's over all V, both at temperature 1:

* ``ce``: -log q(x) of the answer's token x; nothing where the drafter lacks x.
* ``soft_ce``: -sum_v p(v) log q(v) over the drafter's tokens (EAGLE-3, arXiv 2503.01840).
* ``tv``: 1/2 sum_v |p(v) - q(v)| over all V; q is 0 where the drafter lacks v. 1 - tv is the chance that
  rejection sampling accepts the draft (Leviathan et al., arXiv 2211.17192).
* ``confidence``: binary cross entropy of the confidence head against 1 - tv, which is not learned from.

Draft k of a block weighs exp(-k / decay); sums of weighted terms are divided by the sum of weights over
the whole step (DSpark, arXiv 2607.05147; DeepSpec's ``modeling/dspark/loss.py``, whose L1 is 2 tv).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from dspark.training.settings import LossWeights

TERMS = ("ce", "soft_ce", "tv", "confidence")
CHUNK_VALUES = 1 << 24
"""Logits of one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """What the losses are computed from; R rows.

    A row's logits are its hidden state times ``head``, plus what the Markov head makes of the token
    before, which lies beside the state, times ``markov``.
    """

    hidden: Tensor  # [R, d + r]
    head: Tensor  # [W, d]
    markov: Tensor | None  # [W, r]; None: no Markov head, r is 0
    teacher_hidden: Tensor  # [R, d]
    teacher: Tensor  # [W, d], rows of the target's head
    log_normaliser: Tensor  # [R]
    labels: Tensor  # int [R], draft ids, -1 where the drafter lacks the token
    confidence: Tensor | None  # [R], logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Each row's terms and how it compares."""

    ce: Tensor  # [R]
    soft_ce: Tensor  # [R]
    tv: Tensor  # [R]
    confidence: Tensor  # [R]; 0 without the head
    is_match: Tensor  # bool [R]: the likeliest guess is the answer's token


def measure(guesses: Guesses) -> Measured:
    """The terms of every row, float32 [R] each, with gradients to everything but the target's law."""
    size = max(1, CHUNK_VALUES // guesses.head.shape[0])
    starts = range(0, guesses.hidden.shape[0], size)
    weight = guesses.head if guesses.markov is None else torch.cat([guesses.head, guesses.markov], 1)
    parts = [_compare(*_of_rows(guesses, weight, slice(start, start + size))) for start in starts]
    ce, soft, tv, match = (torch.cat(each) for each in zip(*parts, strict=True))
    confidence = confidence_terms(guesses.confidence, tv)
    return Measured(ce=ce, soft_ce=soft, tv=tv, confidence=confidence, is_match=match)


def confidence_terms(confidence: Tensor | None, tv: Tensor) -> Tensor:
    """Float [R]: cross entropy of the head's logits [R] against 1 - tv, which learns nothing by it."""
    if confidence is None:
        return torch.zeros_like(tv)
    return F.binary_cross_entropy_with_logits(confidence.float(), 1 - tv.detach(), reduction="none")


def _of_rows(guesses: Guesses, weight: Tensor, rows: slice) -> tuple[Tensor, ...]:
    return (
        guesses.hidden[rows],
        weight,
        guesses.teacher_hidden[rows],
        guesses.teacher,
        guesses.log_normaliser[rows],
        guesses.labels[rows],
    )


def _compare(
    hidden: Tensor, weight: Tensor, taught: Tensor, teacher: Tensor, normaliser: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ce, soft_ce, tv [R] and which rows match."""
    log_q = torch.log_softmax(F.linear(hidden, weight).float(), -1)
    with torch.no_grad():
        p = torch.exp(F.linear(taught.to(teacher.dtype), teacher).float() - normaliser[:, None].float())
        is_match = log_q.argmax(-1) == labels
        missed = (1 - p.sum(-1)).clamp(min=0)  # what the drafter cannot draft
    known = labels >= 0
    ce = -log_q.gather(-1, labels.clamp(min=0)[:, None])[:, 0] * known
    soft_ce = -(p * log_q).sum(-1)
    tv = ((p - log_q.exp()).abs().sum(-1) + missed) / 2
    return ce, soft_ce, tv, is_match


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Sums over the blocks of a batch; tensors, of which only ``loss`` carries gradients.

    ``overlap`` and ``match`` are per draft k; ``survival`` and ``run`` are the same, multiplied up to k:
    a draft counts if all before it do.
    """

    loss: Tensor  # sum of weight * the terms' weighted sum, with gradients
    terms: Tensor  # [4], TERMS in order, each the sum of weight * term
    weight: Tensor  # sum of weights
    count: Tensor  # [K] guesses
    overlap: Tensor  # [K] sum of 1 - tv
    survival: Tensor  # [K] sum of the product of 1 - tv up to k
    match: Tensor  # [K] guesses whose likeliest token is the answer's
    run: Tensor  # [K] blocks whose first k + 1 guesses all match
    error: Tensor  # sum of |confidence - (1 - tv)|


def position_weights(exists: Tensor, decay: float) -> Tensor:
    """Float [A, K]: exp(-k / decay) of draft k, 0 of guesses without a label (bool [A, K])."""
    k = torch.arange(exists.shape[1], device=exists.device)
    return exists * torch.exp(-k / decay)


def sum_up(
    measured: Measured,
    exists: Tensor,
    confidence: Tensor | None,
    weights: LossWeights,
    learned: Tensor | None = None,
) -> LossSums:
    """The sums of a batch.

    Args:
        measured: of the A * K rows, block after block.
        exists: bool [A, K], guesses that have a label.
        confidence: [A * K] logits, or None.
        weights: of terms and positions.
        learned: the weighted sum of all terms but the confidence's, where it is known already.
    """
    of_position = position_weights(exists, weights.decay)
    terms = torch.stack([(getattr(measured, name).view(exists.shape) * of_position).sum() for name in TERMS])
    loss = weights.confidence * terms[-1]
    if learned is None:
        learned = weights.ce * terms[0] + weights.soft_ce * terms[1] + weights.tv * terms[2]
    overlap = (1 - measured.tv.detach()).view(exists.shape)
    match = measured.is_match.view(exists.shape).float() * exists
    error = overlap.new_zeros(())
    if confidence is not None:
        said = torch.sigmoid(confidence.detach().float()).view(exists.shape)
        error = ((said - overlap).abs() * exists).sum()
    return LossSums(
        loss=learned + loss,
        terms=terms.detach(),
        weight=of_position.sum(),
        count=exists.sum(0).float(),
        overlap=(overlap * exists).sum(0),
        survival=(overlap.cumprod(1) * exists).sum(0),
        match=match.sum(0),
        run=match.cumprod(1).sum(0),
        error=error,
    )
