"""What a policy makes of one given step, for asking again after something about the draft has changed.

Shapes as in ``dspark.types``. All that could be drafted is laid out before, so that the answer to
"how much would be verified?" is a function of these facts alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.engine.assembly import check_depths
from dspark.types import NO_TOKEN, Draft, Knowledge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.policies.base import Policy, State
    from dspark.types import Signal, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the drafter could draft in a step, to the full depth of every row."""

    tokens: Tensor  # [B, K]
    q: Tensor | None  # [B, K, V]; None where the drafter tells none
    signals: Mapping[Signal, Tensor]  # [B, K]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A policy's step up to the draft."""

    ctx: StepContext
    state: State
    allowed: Tensor  # [B] depths after the clamp
    autoregressive: bool  # the drafter asks ``proceed``


def decided(policy: Policy, step: Step, facts: Facts) -> tuple[Draft, Tensor]:
    """The draft that results, and its verify lengths [B].

    Raises:
        ValueError: the policy answers with what is no depth.
    """
    lengths = _draft_lengths(policy, step, facts)
    drafted = torch.arange(facts.tokens.shape[1], device=lengths.device) < lengths[:, None]
    draft = Draft(
        tokens=facts.tokens.where(drafted, NO_TOKEN),
        lengths=lengths,
        q=None if facts.q is None else facts.q * drafted[:, :, None],
        signals={name: values.where(drafted, torch.nan) for name, values in facts.signals.items()},
    )
    verified = policy.trim(step.ctx, draft, step.state)
    check_depths("trim", verified, step.ctx, lengths, policy)
    return draft, verified


def with_another_token(facts: Facts, other: Facts, row: int, k: int) -> Facts:
    """The facts with ``other``'s token at depth k (from 0) of one row, and all that follows from it.

    What precedes the token stays: q and the signals of depth k that are known before it is drawn.
    """
    from_token, behind = _places(facts.tokens, row, k), _places(facts.tokens, row, k + 1)
    q = None
    if facts.q is not None:
        assert other.q is not None, "both or neither tell q"
        q = torch.where(behind[:, :, None], other.q, facts.q)
    signals = {}
    for name, values in facts.signals.items():
        changed = from_token if name.knowledge is Knowledge.SAMPLED_TOKEN else behind
        signals[name] = torch.where(changed, other.signals[name], values)
    return Facts(tokens=torch.where(from_token, other.tokens, facts.tokens), q=q, signals=signals)


def with_another_rest(facts: Facts, other: Facts, k: int) -> Facts:
    """The facts of the first k depths, and ``other``'s behind them, in all rows."""

    def join(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a[:, :k], b[:, k:]], dim=1)

    return Facts(
        tokens=join(facts.tokens, other.tokens),
        q=None if facts.q is None or other.q is None else join(facts.q, other.q),
        signals={name: join(values, other.signals[name]) for name, values in facts.signals.items()},
    )


def _places(tokens: Tensor, row: int, start: int) -> Tensor:
    """Bool [B, K]: depths from ``start`` on in one row."""
    num_rows, width = tokens.shape
    is_row = torch.arange(num_rows, device=tokens.device) == row
    return is_row[:, None] & (torch.arange(width, device=tokens.device) >= start)


def _draft_lengths(policy: Policy, step: Step, facts: Facts) -> Tensor:
    """Int [B]: the allowed depths, or where ``proceed`` ends a row."""
    if not step.autoregressive:
        return step.allowed
    lengths = step.allowed.clamp(max=1)
    for k in range(1, facts.tokens.shape[1]):
        may = (lengths == k) & (step.allowed > k)
        if not bool(may.any()):
            break
        drafted = torch.arange(k, device=lengths.device) < lengths[:, None]
        signals = {name: values[:, :k].where(drafted, torch.nan) for name, values in facts.signals.items()}
        goes_on = policy.proceed(step.ctx, k, signals, step.state)
        lengths = torch.where(may & goes_on, k + 1, lengths)
    return lengths
