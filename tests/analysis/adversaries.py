"""Hand-written policies for the audit: honest ones of every class, and some that cheat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dspark.policies.base import Policy
from dspark.types import LosslessClass, Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDepth(Policy):
    """Drafts ``depth`` and verifies all; what the others start from. Class A."""

    depth: int = 3

    lossless_class: ClassVar[LosslessClass] = LosslessClass.FIXED  # type: ignore[misc]

    @property
    def max_depth(self) -> int:
        return self.depth

    def plan(self, ctx, state) -> Tensor:
        return torch.full_like(ctx.slots, self.depth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner(FullDepth):
    """Class A with a memory: ``start`` tokens, and as many more as the row's last step accepted."""

    start: int = 1

    def init(self, num_slots):
        return torch.zeros(num_slots, dtype=torch.int64)

    def plan(self, ctx, state):
        return (self.start + torch.where(ctx.is_new, 0, state[ctx.slots])).clamp(max=self.depth)

    def observe(self, ctx, verdict, state):
        return state.scatter(0, ctx.slots, verdict.accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAfterUnlikely(FullDepth):
    """Class B: the first token with q below one half is verified and ends the draft."""

    lossless_class: ClassVar[LosslessClass] = LosslessClass.STOP_AFTER  # type: ignore[misc]

    @property
    def needs(self):
        return frozenset({Signal.TOKEN_PROBABILITY})

    def proceed(self, ctx, k, signals, state):
        return (signals[Signal.TOKEN_PROBABILITY] >= 0.5).all(1)

    def trim(self, ctx, draft, state):
        sure = (draft.signals[Signal.TOKEN_PROBABILITY] >= 0.5).long().cumprod(1).sum(1)
        return torch.minimum(draft.lengths, sure + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhileConfident(FullDepth):
    """Class C: up to the first position whose confidence is below one half, without it."""

    lossless_class: ClassVar[LosslessClass] = LosslessClass.PRE_TOKEN  # type: ignore[misc]

    @property
    def needs(self):
        return frozenset({Signal.CONFIDENCE})

    def trim(self, ctx, draft, state):
        return (draft.signals[Signal.CONFIDENCE] >= 0.5).long().cumprod(1).sum(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropUnlikely(FullDepth):
    """Cheats: up to the first token with q below one half, without it; claims class C."""

    lossless_class: ClassVar[LosslessClass] = LosslessClass.PRE_TOKEN  # type: ignore[misc]

    @property
    def needs(self):
        return frozenset({Signal.TOKEN_PROBABILITY})

    def trim(self, ctx, draft, state):
        return (draft.signals[Signal.TOKEN_PROBABILITY] >= 0.5).long().cumprod(1).sum(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead(FullDepth):
    """Cheats with a signal that precedes its token: all, if the *second* confidence is high, else none."""

    lossless_class: ClassVar[LosslessClass] = LosslessClass.PRE_TOKEN  # type: ignore[misc]

    @property
    def needs(self):
        return frozenset({Signal.CONFIDENCE})

    def trim(self, ctx, draft, state):
        confidence = draft.signals[Signal.CONFIDENCE]
        if confidence.shape[1] < 2:
            return draft.lengths
        return torch.where(confidence[:, 1] >= 0.5, draft.lengths, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekAtTokens(FullDepth):
    """Cheats without any signal: up to the first odd token, without it."""

    def trim(self, ctx, draft, state):
        return torch.minimum(draft.lengths, (draft.tokens % 2 == 0).long().cumprod(1).sum(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekAtQ(FullDepth):
    """Cheats with q itself: up to the first token that is not its arg max, without it."""

    def trim(self, ctx, draft, state):
        if draft.q is None:
            return draft.lengths
        is_best = draft.q.argmax(-1) == draft.tokens
        return torch.minimum(draft.lengths, is_best.long().cumprod(1).sum(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class EachOther(FullDepth):
    """A row is verified if the other row's first token is 0: exact row by row, and not together."""

    def trim(self, ctx, draft, state):
        if ctx.num_rows != 2:
            return draft.lengths
        return torch.where(draft.tokens[:, 0].flip(0) == 0, draft.lengths, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinFlip(FullDepth):
    """Not pure: asks a global generator."""

    def trim(self, ctx, draft, state):
        return (torch.rand(draft.lengths.shape) * (draft.lengths + 1)).long()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfBounds(FullDepth):
    """Wants more verified than was drafted."""

    def trim(self, ctx, draft, state):
        return draft.lengths + 1
