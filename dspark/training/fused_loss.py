"""The guesses' losses with their gradients, a few rows at a time, so that no logits of a whole batch exist.

A batch's logits would take hundreds of megabytes, written and read a dozen times. Gradients of the
three terms to the logits z are known in closed form, with q = softmax(z) and p the target's law:

* ce: q - onehot(x), where the drafter has x;
* soft_ce: (sum_v p(v)) q - p;
* tv: q (s - sum_v s(v) q(v)) with s = sign(q - p) / 2.

So they are computed while the logits are there. :func:`~dspark.training.losses.measure` is the
reference: it leaves all of this to autograd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dspark.training.losses import Guesses, Measured, confidence_terms

if TYPE_CHECKING:
    from dspark.training.settings import LossWeights

CPU_VALUES, GPU_VALUES = 1 << 20, 1 << 26
"""Logits of one piece: on a CPU they should stay in its cache."""
MIN_ROWS = 128
"""Of a piece: the head's weights are read once a piece."""


def learn(guesses: Guesses, row_weights: Tensor, weights: LossWeights) -> tuple[Tensor, Measured]:
    """The weighted sum of ce, soft_ce and tv over all rows, with gradients, and every row's terms without.

    Args:
        guesses: R rows.
        row_weights: float [R].
        weights: of the terms; the confidence head's loss is not among them, and is in ``Measured`` with
            gradients to the confidence.
    """
    mix = (weights.ce, weights.soft_ce, weights.tv)
    fixed = (guesses.teacher_hidden, guesses.teacher, guesses.log_normaliser, guesses.labels)
    loss, ce, soft_ce, tv, is_match = _Learn.apply(
        guesses.hidden, guesses.head, guesses.markov, fixed, row_weights, mix
    )
    confidence = confidence_terms(guesses.confidence, tv)
    return loss, Measured(ce=ce, soft_ce=soft_ce, tv=tv, confidence=confidence, is_match=is_match)


class _Learn(Function):
    """See :func:`learn`; the gradients are kept until the backward pass scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        markov: Tensor | None,
        fixed: tuple[Tensor, Tensor, Tensor, Tensor],
        row_weights: Tensor,
        mix: tuple[float, float, float],
    ) -> tuple[Tensor, ...]:
        of_markov = 0 if markov is None else markov.shape[1]
        weight = head if markov is None else torch.cat([head, markov], 1)
        of_head = hidden.shape[1] - of_markov
        wants_head, wants_markov = ctx.needs_input_grad[1:3]
        to_hidden = torch.empty_like(hidden)
        to_head = torch.zeros_like(head, dtype=torch.float32) if wants_head else None
        to_markov = (
            torch.zeros_like(markov, dtype=torch.float32) if markov is not None and wants_markov else None
        )
        values = CPU_VALUES if hidden.device.type == "cpu" else GPU_VALUES
        size = max(MIN_ROWS, values // len(weight))
        out: list[tuple[Tensor, ...]] = []
        # autocast would round the target's logits, whose law then does not add up to 1
        with torch.autocast(hidden.device.type, enabled=False):
            weight = weight.to(hidden.dtype)
            for start in range(0, len(hidden), size):
                rows = slice(start, start + size)
                z = torch.nn.functional.linear(hidden[rows], weight).float()
                p = _law(fixed, rows)
                terms, slope = _terms_and_slope(z, p, fixed[3][rows], row_weights[rows], mix)
                slope = slope.to(hidden.dtype)
                to_hidden[rows] = slope @ weight
                if to_head is not None:
                    to_head += slope.T @ hidden[rows, :of_head]
                if to_markov is not None:
                    to_markov += slope.T @ hidden[rows, of_head:]
                out.append(terms)
        ce, soft_ce, tv, is_match = (torch.cat(part) for part in zip(*out, strict=True))
        loss = ((mix[0] * ce + mix[1] * soft_ce + mix[2] * tv) * row_weights).sum()
        ctx.save_for_backward(to_hidden, to_head, to_markov)
        ctx.mark_non_differentiable(ce, soft_ce, tv, is_match)
        return loss, ce, soft_ce, tv, is_match

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream[0]
        grads = [None if grad is None else grad * scale for grad in ctx.saved_tensors]
        return (*grads, None, None, None)


def _law(fixed: tuple[Tensor, Tensor, Tensor, Tensor], rows: slice) -> Tensor:
    """Float32 [R, W]: the target's law over the drafter's tokens."""
    taught, teacher, normaliser, _ = fixed
    logits = torch.nn.functional.linear(taught[rows].float(), teacher.float())
    return logits.sub_(normaliser[rows, None]).exp_()


def _terms_and_slope(
    z: Tensor, p: Tensor, labels: Tensor, row_weights: Tensor, mix: tuple[float, float, float]
) -> tuple[tuple[Tensor, ...], Tensor]:
    """ce, soft_ce, tv, is_match [R], and the weighted loss's gradient to the logits [R, W].

    Args:
        z: float [R, W], the drafter's logits; overwritten.
        p: float [R, W], the target's law over the drafter's tokens; overwritten.
        labels: int [R], -1 where the drafter lacks the token.
        row_weights: float [R].
        mix: weights of ce, soft_ce and tv.
    """
    known = labels >= 0
    at = labels.clamp(min=0)[:, None]
    q = torch.softmax(z, -1)
    top = z.max(-1)
    normaliser = top.values - q.gather(-1, top.indices[:, None])[:, 0].log()
    ce = (normaliser - z.gather(-1, at)[:, 0]) * known
    covered = p.sum(-1)
    soft_ce = covered * normaliser - torch.linalg.vecdot(p, z)
    difference = torch.sub(q, p, out=z)  # the logits are not read any more
    tv = (difference.abs().sum(-1) + (1 - covered).clamp(min=0)) / 2
    sign = difference.sgn_().mul_(mix[2] / 2)
    shift = torch.linalg.vecdot(sign, q)
    slope = sign.add_((mix[0] * known + mix[1] * covered - shift)[:, None]).mul_(q)
    if mix[1]:
        slope.sub_(p, alpha=mix[1])
    slope.scatter_add_(-1, at, (-mix[0] * known)[:, None].to(slope.dtype))
    return (ce, soft_ce, tv, top.indices == labels), slope.mul_(row_weights[:, None])
