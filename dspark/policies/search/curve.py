"""Expected tokens per second as a function of how many drafted tokens are verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.cost.base import CostModel
    from dspark.policies.search.ranking import Ranking
    from dspark.types import StepContext


def throughput(ctx: StepContext, ranking: Ranking, depth: Tensor, *, with_bonus: bool = True) -> Tensor:
    """Float64 [P + 1], expected tokens per second if the first 0...P ranked positions are verified.

    The objective of DSpark's Algorithm 1, ``Θ(n) = (R + sum of the n largest survivals) · SPS(R + n)``,
    with SPS one over the seconds of the whole step, drafting included.

    Args:
        ctx: the step; its cost model gives the seconds.
        ranking: of the survivals that are summed.
        depth: int, tokens drafted one after another in this step.
        with_bonus: count the recovered or bonus token of each row; without it R is left out.
    """
    num_own = ctx.num_rows if with_bonus else 0
    # the rows' own tokens go into the sum first: so a loop that adds one survival at a time gets the same
    expected = torch.cat([ranking.survival.new_full((1,), num_own), ranking.survival]).cumsum(dim=0)
    rows = torch.tensor(ctx.num_rows, device=expected.device)
    times = cost_of(ctx).step_time_s(
        decode_rows=rows,
        tokens=rows + torch.arange(expected.numel(), device=expected.device),
        context_tokens=cached_tokens(ctx),
        draft_tokens=depth,
    )
    return expected / times.total_s


def cached_tokens(ctx: StepContext) -> Tensor:
    """Int without dimension: tokens in the cache over all rows; each row's last one is not there yet."""
    return (ctx.context_lengths - 1).sum()


def cost_of(ctx: StepContext) -> CostModel:
    """The step's cost model, which the run was checked to have."""
    assert ctx.cost is not None, "a policy that needs a cost model ran without one"
    return cast("CostModel", ctx.cost)
