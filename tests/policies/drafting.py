"""How an autoregressive drafter uses a policy, and blocks to draft from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.types import Draft, Signal

if TYPE_CHECKING:
    from dspark.policies import Policy
    from dspark.types import StepContext


def block_of(signals: dict[Signal, list[list[float]]]) -> Draft:
    """A finished block with these signals; NaN ends a row."""
    values = {name: torch.tensor(rows) for name, rows in signals.items()}
    first = next(iter(values.values()))
    return Draft(
        tokens=torch.zeros(first.shape, dtype=torch.long).masked_fill(first.isnan(), -1),
        lengths=(~first.isnan()).sum(1),
        q=None,
        signals=values,
    )


def stopped_on_the_way(policy: Policy, ctx: StepContext, block: Draft, state: object) -> Draft:
    """The block as a drafter leaves it that asks ``proceed`` after every token."""
    depth = block.tokens.shape[1]
    lengths = block.lengths.clamp(max=1)
    for k in range(1, depth):
        drafted = torch.arange(k) < lengths[:, None]
        seen = {name: values[:, :k].where(drafted, torch.nan) for name, values in block.signals.items()}
        goes_on = policy.proceed(ctx, k, seen, state) & (lengths == k) & (block.lengths > k)
        lengths = lengths + goes_on.long()
    drafted = torch.arange(depth) < lengths[:, None]
    return Draft(
        tokens=block.tokens.where(drafted, -1),
        lengths=lengths,
        q=None,
        signals={name: values.where(drafted, torch.nan) for name, values in block.signals.items()},
    )


def verified_either_way(policy: Policy, ctx: StepContext, block: Draft, state: object) -> list[int]:
    """Verify lengths of the block, after checking that stopping on the way gives the same."""
    whole = policy.trim(ctx, block, state)
    stopped = stopped_on_the_way(policy, ctx, block, state)
    assert torch.equal(policy.trim(ctx, stopped, state), whole)
    return whole.tolist()


def spared(policy: Policy, ctx: StepContext, block: Draft, state: object) -> list[int]:
    """Tokens of the block that stopping on the way leaves undrafted."""
    return (block.lengths - stopped_on_the_way(policy, ctx, block, state).lengths).tolist()
