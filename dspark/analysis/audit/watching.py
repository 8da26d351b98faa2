"""A draft model and a policy as the engine runs them, that can be asked what they last met."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from dspark.drafters.base import DraftBatch, Drafter, Proceed
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.policies.base import Policy
from dspark.types import Draft, LosslessClass, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.models.base import Target
    from dspark.policies.base import State
    from dspark.types import StepContext, Verdict


def read_for(needs: frozenset[Signal]) -> frozenset[Signal]:
    """Signals to ask of a draft model, which has no confidence head."""
    top1 = {Signal.TOP1_PROBABILITY} if Signal.CONFIDENCE in needs else set()
    return (needs & DraftModelDrafter.signals) | top1


def with_confidence(signals: Mapping[Signal, Tensor], needs: frozenset[Signal]) -> dict[Signal, Tensor]:
    """The signals in need; the largest probability of q stands in for a confidence head."""
    found = {name: values for name, values in signals.items() if name in needs}
    if Signal.CONFIDENCE in needs:
        found[Signal.CONFIDENCE] = signals[Signal.TOP1_PROBABILITY]
    return found


class WatchedDrafter(Drafter):
    """A draft model with a stand-in confidence head, whose last input can be read."""

    signals = DraftModelDrafter.signals | {Signal.CONFIDENCE}
    deterministic = False
    autoregressive = True

    def __init__(self, model: Target) -> None:
        self._inner = DraftModelDrafter(model)
        self.vocab_size, self.max_context = model.vocab_size, model.max_context
        self.committed: list[list[int]] | None = None

    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """As the draft model does."""
        self._inner.open(num_slots, max_depth, max_context)

    def release(self, slot: int) -> None:
        """As the draft model does."""
        self._inner.release(slot)

    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """The draft model's draft."""
        self.committed = [list(tokens) for tokens in batch.tokens]
        needs = batch.needs
        draft = self._inner.propose(
            replace(batch, needs=read_for(needs)),
            plan,
            lambda k, signals: proceed(k, with_confidence(signals, needs)),
        )
        return replace(draft, signals=with_confidence(draft.signals, needs))


class WatchedPolicy(Policy):
    """A policy whose last step can be read."""

    needs_cost: ClassVar[bool] = True  # there is one

    def __init__(self, policy: Policy) -> None:
        self._inner = policy
        self._last: tuple[StepContext, Draft, State] | None = None

    def taken(self) -> tuple[StepContext, Draft, State] | None:
        """What ``trim`` was asked since this was called last, if it was."""
        last, self._last = self._last, None
        return last

    @property
    def lossless_class(self) -> LosslessClass:
        """The policy's."""
        return self._inner.lossless_class

    @property
    def max_depth(self) -> int:
        """The policy's."""
        return self._inner.max_depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The policy's."""
        return self._inner.needs

    def init(self, num_slots: int) -> State:
        """The policy's."""
        return self._inner.init(num_slots)

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """The policy's."""
        return self._inner.plan(ctx, state)

    def proceed(self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: State) -> Tensor:
        """The policy's."""
        return self._inner.proceed(ctx, k, signals, state)

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """The policy's."""
        self._last = ctx, draft, state
        return self._inner.trim(ctx, draft, state)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The policy's."""
        return self._inner.observe(ctx, verdict, state)
