"""The contract of an acceptance estimator: how likely is each draft token to be accepted?

An estimator answers with conditional probabilities ``c_{i,k}``: the chance that the target accepts
the token at depth k of row i, given that it accepted the k - 1 before it. ``survival`` turns them
into the chance that the draft is accepted up to and with k. Like a policy, an estimator is a frozen
dataclass of hyper-parameters with explicit state; policies own one and pass its hooks through.

Shapes as in ``dspark.types``; ``width`` is the number of positions asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.types import Knowledge, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.policies.base import State
    from dspark.types import StepContext, Verdict


class Estimator(ABC):
    """Abstract; concrete estimators are final. To tweak one, wrap it.

    All hooks are pure, as those of a policy are.
    """

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that ``conditional`` or ``observe`` reads; none where only the past counts."""
        return frozenset()

    @property
    def knowledge(self) -> Knowledge:
        """What an estimate for position k looks at: the most that any signal in ``needs`` does."""
        order = tuple(Knowledge)
        return max((signal.knowledge for signal in self.needs), key=order.index, default=Knowledge.PAST)

    def init(self, num_slots: int, max_depth: int) -> State:
        """State before the first step, for drafts of up to ``max_depth`` tokens."""
        return None

    @abstractmethod
    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: State
    ) -> Tensor:
        """Float64 [B, width] in [0, 1]: c of the positions 1...width, a column a position.

        Where a signal is NaN, nothing was drafted and the answer is 0. An estimator that reads no
        signal does not know how long the drafts are: mask by ``draft.lengths`` where that matters.

        Args:
            ctx: the step.
            signals: float [B, >= width], as in a draft or in ``proceed``; None before drafting, when
                only estimators of past knowledge can answer.
            width: positions asked for, 0 to ``max_depth``.
            state: from ``init`` or ``observe``.

        Raises:
            ValueError: ``signals`` is None or lacks one of ``needs``.
        """

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """State after the step; everything in ``verdict`` is past from here on."""
        return state

    def warming_up(self, state: State) -> bool:
        """True while the estimator asks for whole drafts to be verified, to learn all positions."""
        return False


def survival(conditional: Tensor) -> Tensor:
    """Float [B, K] a_{i,k}, the product of the conditional acceptances c_{i,1}...c_{i,k}."""
    return conditional.cumprod(dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Which positions a verdict tells about, and what; bool [B, K] each."""

    reached: Tensor  # the target decided about the token: all before it were accepted
    accepted: Tensor  # and accepted it; a subset of reached


def observed(verdict: Verdict, width: int) -> Observed:
    """Outcomes of the positions 1...width: the accepted ones, and the first rejected one if any.

    Tokens behind a rejection were compared with a prefix that did not come to be, so they say
    nothing about conditional acceptance and do not count.
    """
    k = torch.arange(1, width + 1, device=verdict.accepted.device)
    num_reached = torch.minimum(verdict.accepted + 1, verdict.verify_lengths)
    return Observed(reached=k <= num_reached[:, None], accepted=k <= verdict.accepted[:, None])


def read_signal(signals: Mapping[Signal, Tensor] | None, signal: Signal, width: int, reader: str) -> Tensor:
    """Float64 [B, width] of one signal, NaN where nothing was drafted.

    Args:
        signals: what the drafter gave; None before drafting.
        signal: which.
        width: positions asked for.
        reader: the estimator's name, for the message.

    Raises:
        ValueError: there is no such signal.
    """
    if signals is None:
        raise ValueError(
            f"estimator {reader} reads the signal {signal} of drafted tokens, and was asked before anything"
            " was drafted: plan with an estimator of the past, such as request_ema or position_window"
        )
    if signal not in signals:
        given = ", ".join(sorted(signals)) or "none"
        raise ValueError(f"estimator {reader} reads the signal {signal}, which is not given; given: {given}")
    return signals[signal][:, :width].double()


def require_probability(value: float, name: str) -> None:
    """Refuse what is no probability.

    Raises:
        ValueError: ``value`` is outside [0, 1], or NaN.
    """
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")
