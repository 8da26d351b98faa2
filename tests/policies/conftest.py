"""Step contexts and drafts for policy tests."""

from __future__ import annotations

import pytest
import torch

from dspark.types import Draft, Knowledge, Signal, StepContext


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
        cost=None,
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
    """True if changing what must be unknown at position k changes whether k is verified, for some k."""
    before = policy.trim(ctx, draft, state)
    for k in range(draft.tokens.shape[1]):  # position k + 1
        fresh = _draft(draft.lengths, generator, draft.tokens.shape[1])
        signals = {}
        for name, values in draft.signals.items():
            known = k if name.knowledge is Knowledge.SAMPLED_TOKEN else k + 1
            signals[name] = torch.cat([values[:, :known], fresh.signals[name][:, known:]], dim=1)
        tokens = torch.cat([draft.tokens[:, :k], fresh.tokens[:, k:]], dim=1)
        changed = Draft(tokens=tokens, lengths=draft.lengths, q=None, signals=signals)
        if not torch.equal(policy.trim(ctx, changed, state) > k, before > k):
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
