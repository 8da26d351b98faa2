"""Decisions about the rows of a step: greedy rows by matching, sampled rows by a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from dspark.sampling import arg_max, is_plain
from dspark.types import Verdict
from dspark.verification.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from dspark.types import Draft
    from dspark.verification.base import SampledRow


class Decision(NamedTuple):
    """What becomes of R rows."""

    accepted: Tensor  # [R]
    next_token: Tensor  # [R]


def match_greedy(step: Step) -> Decision:
    """Drafts equal to the target's arg max, up to the first that is not, and the arg max after them."""
    choices = arg_max(step.adjusted())
    depths = torch.arange(step.tokens.shape[1], device=choices.device)
    drafted = depths < step.lengths[:, None]
    at = torch.where(drafted, step.first[:, None] + depths, 0)
    agree = drafted & (choices[at] == step.tokens)
    accepted = agree.long().cumprod(1).sum(1)
    return Decision(accepted, choices[step.first + accepted])


def decide(
    rows: Sequence[SampledRow],
    draft: Draft | None,
    verify_lengths: Tensor,
    logits: Tensor,
    *,
    sampled: Callable[[Step], Decision],
) -> Verdict:
    """The verdict on a batch that may mix greedy rows with sampled rows, which follow ``sampled``."""
    if _is_plain_decoding(rows, draft):
        assert logits.shape[0] == len(rows), f"{logits.shape[0]} logits for {len(rows)} positions"
        return _verdict(verify_lengths, Decision(torch.zeros_like(verify_lengths), arg_max(logits)))
    step = Step.of(rows, draft, verify_lengths, logits)
    greedy_rows = [i for i, row in enumerate(rows) if row.is_greedy]
    if len(greedy_rows) == len(rows):
        return _verdict(verify_lengths, match_greedy(step))
    if not greedy_rows:
        return _verdict(verify_lengths, sampled(step))
    sampled_rows = [i for i, row in enumerate(rows) if not row.is_greedy]
    order = torch.tensor(greedy_rows + sampled_rows, device=logits.device).argsort()
    parts = match_greedy(step.select(greedy_rows)), sampled(step.select(sampled_rows))
    return _verdict(verify_lengths, Decision(*(torch.cat(both)[order] for both in zip(*parts, strict=True))))


def _is_plain_decoding(rows: Sequence[SampledRow], draft: Draft | None) -> bool:
    """True where nothing was drafted and every row takes the arg max of its raw logits."""
    return draft is None and all(row.is_greedy and is_plain(row.params) for row in rows)


def _verdict(verify_lengths: Tensor, decision: Decision) -> Verdict:
    return Verdict(verify_lengths=verify_lengths, accepted=decision.accepted, next_token=decision.next_token)
