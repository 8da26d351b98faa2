"""Step contexts and drafts for policy tests."""

from __future__ import annotations

import pytest
import torch

from dspark.types import Draft, Knowledge, Signal, StepContext
from tests.policies.listed_cost import ListedCost

STAIRCASE = ListedCost(seconds=[0.004 + 0.002 * (tokens // 4) for tokens in range(1000)])
"""Free tokens up to the edge of a bucket, as captured shapes cost."""


def _context(num_rows: int, *, num_slots: int | None = None, step: int = 0, slots=None) -> StepContext:
    if slots is None:
        slots = torch.arange(num_rows)
    return StepContext(
        step=step,
        slots=slots,
        is_new=torch.zeros(num_rows, dtype=torch.bool),
        context_lengths=100 + 7 * slots,
        remaining_tokens=torch.full((num_rows,), 50),
        depth_caps=torch.full((num_rows,), 1000),
        num_slots=num_slots or max(num_rows, 1),
        cost=STAIRCASE,
    )


def _draft(lengths: torch.Tensor, generator: torch.Generator, width: int | None = None) -> Draft:
    """A draft of random tokens that carries every signal there is."""
    width = int(lengths.max()) if width is None else width
    shape = (len(lengths), width)
    drafted = torch.arange(width) < lengths[:, None]
    signals = {name: torch.rand(shape, generator=generator) for name in Signal}
    top1 = 0.5 + signals[Signal.TOP1_PROBABILITY] / 2
    signals[Signal.TOP1_PROBABILITY] = top1
    signals[Signal.TOKEN_PROBABILITY] = torch.minimum(signals[Signal.TOKEN_PROBABILITY], top1)
    tokens = torch.randint(0, 50, shape, generator=generator)
    return Draft(
        tokens=tokens.where(drafted, -1),
        lengths=lengths,
        q=None,
        signals={name: values.where(drafted, torch.nan) for name, values in signals.items()},
    )


def _anticipates(policy, ctx: StepContext, draft: Draft, state, generator: torch.Generator) -> bool:
    """True if what a row must not know at position k changes whether its k is verified, for some k.

    One row is changed at a time: a rule that shares a budget may well look at its neighbours' tokens.
    """
    before = policy.trim(ctx, draft, state)
    fresh = _draft(draft.lengths, generator, draft.tokens.shape[1])
    for row in range(min(len(draft.lengths), 8)):
        for k in range(draft.tokens.shape[1]):  # position k + 1
            signals = {name: values.clone() for name, values in draft.signals.items()}
            for name, values in signals.items():
                known = k if name.knowledge is Knowledge.SAMPLED_TOKEN else k + 1
                values[row, known:] = fresh.signals[name][row, known:]
            tokens = draft.tokens.clone()
            tokens[row, k:] = fresh.tokens[row, k:]
            changed = Draft(tokens=tokens, lengths=draft.lengths, q=None, signals=signals)
            if bool((policy.trim(ctx, changed, state)[row] > k) != (before[row] > k)):
                return True
    return False


@pytest.fixture(scope="session")
def step_context():
    """``step_context(num_rows, *, num_slots, step, slots)``."""
    return _context


@pytest.fixture(scope="session")
def random_draft():
    """``random_draft(lengths, generator, width=None)``, with every signal."""
    return _draft


@pytest.fixture(scope="session")
def anticipates():
    """``anticipates(policy, ctx, draft, state, generator)``."""
    return _anticipates
