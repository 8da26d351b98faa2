"""A policy against a small world: drafts are accepted and steps take time by given rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dspark.policies.base import Policy, State
from dspark.types import StepContext, Verdict

Accept = Callable[[Tensor], Tensor]
"""Accepted [B] of verify lengths [B]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a run: what was planned, and the state afterwards."""

    plan: list[int]
    state: State


def coin_flips(alpha: float, seed: int = 0) -> Accept:
    """Every token is accepted with probability ``alpha``, independently."""
    generator = torch.Generator().manual_seed(seed)

    def accept(lengths: Tensor) -> Tensor:
        width = max(1, int(lengths.max())) if lengths.numel() else 1
        kept = torch.rand((len(lengths), width), generator=generator, dtype=torch.float64) < alpha
        return torch.minimum(kept.long().cumprod(1).sum(1), lengths)

    return accept


def at_most(tokens: int) -> Accept:
    """The first ``tokens`` of every draft are accepted."""
    return lambda lengths: lengths.clamp(max=tokens)


def run(
    policy: Policy,
    contexts: Sequence[StepContext],
    accept: Accept,
    *,
    seconds: Callable[[StepContext, int], float] = lambda ctx, depth: 0.0,
    cap: int | None = None,
    state: State = None,
) -> list[Step]:
    """What the policy plans in each context, learning from what becomes of its plans.

    Args:
        policy: the policy.
        contexts: one a step; the step's number is its place.
        accept: which tokens are accepted.
        seconds: of a step, by context and deepest draft.
        cap: no draft is longer.
        state: to start from; that of ``init`` if None.
    """
    state = policy.init(contexts[0].num_slots) if state is None else state
    steps = []
    for number, ctx in enumerate(contexts):
        ctx = replace(ctx, step=number)
        plan = policy.plan(ctx, state)
        lengths = plan if cap is None else plan.clamp(max=cap)
        accepted = accept(lengths)
        deepest = int(lengths.max()) if lengths.numel() else 0
        verdict = Verdict(
            verify_lengths=lengths,
            accepted=accepted,
            next_token=torch.zeros_like(accepted),
            step_time_s=seconds(ctx, deepest),
        )
        state = policy.observe(ctx, verdict, state)
        steps.append(Step(plan=plan.tolist(), state=state))
    return steps


def depths(steps: Sequence[Step]) -> list[int]:
    """The first row's plan of each step; None where there was no row."""
    return [step.plan[0] if step.plan else None for step in steps]
