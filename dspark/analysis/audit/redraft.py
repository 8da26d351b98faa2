"""Drafts completed anew by a draft model's own law, with everything it says about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.analysis.audit.decide import Facts
from dspark.analysis.audit.watching import read_for, with_confidence
from dspark.drafters.signals import LogitSignals
from dspark.models.base import PassRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.models.base import Target
    from dspark.types import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A row's draft in the making."""

    committed: list[int]
    drafts: list[int]


def completed(
    model: Target,
    begun: Sequence[Begun],
    width: int,
    needs: frozenset[Signal],
    generator: torch.Generator,
    *,
    with_q: bool,
) -> Facts:
    """The drafts completed to ``width`` tokens by sampling from the model, and what it says about them.

    Args:
        model: drafts.
        begun: n rows.
        width: tokens of every completed draft.
        needs: signals to compute.
        generator: of the draws.
        with_q: tell q.
    """
    cache = model.new_cache(len(begun), max(len(row.committed) for row in begun) + width)
    passes = [
        PassRow(slot=i, start=0, token_ids=[*row.committed, *row.drafts], num_logits=len(row.drafts) + 1)
        for i, row in enumerate(begun)
    ]
    drafts = [list(row.drafts) for row in begun]
    logits: list[list[Tensor]] = [[] for _ in begun]
    while passes:
        for row in passes:
            cache.reserve(row.slot, row.start + len(row.token_ids))
        found = iter(model.forward(passes, cache).float().cpu())
        for row in passes:
            logits[row.slot] += [next(found) for _ in range(row.num_logits)]
        passes = [
            _next_pass(i, row, drafts[i], logits[i][-1], generator)
            for i, row in enumerate(begun)
            if len(drafts[i]) < width
        ]
    said = torch.stack([torch.stack(row[:width]) for row in logits]).to(model.device)
    return _facts(torch.tensor(drafts, device=model.device), said, needs, with_q)


def _next_pass(
    slot: int, row: Begun, drafts: list[int], logits: Tensor, generator: torch.Generator
) -> PassRow:
    """Draws the row's next token, which joins ``drafts``; the pass that takes it in."""
    start = len(row.committed) + len(drafts)
    drafts.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
    return PassRow(slot=slot, start=start, token_ids=drafts[-1:], num_logits=1)


def _facts(tokens: Tensor, logits: Tensor, needs: frozenset[Signal], with_q: bool) -> Facts:
    """What the drafter says about tokens [n, K] that it drew from logits [n, K, V]."""
    num_rows, width = tokens.shape
    signals = LogitSignals(num_rows, width, read_for(needs), logits.device)
    rows = torch.arange(num_rows, device=logits.device)
    for k in range(width):
        signals.record(rows, k + 1, logits[:, k], tokens[:, k])
    q = logits.softmax(-1) if with_q else None
    return Facts(tokens=tokens, q=q, signals=with_confidence(signals.all(), needs))
