"""The contract of a depth policy: how far to draft, and how much of it to verify.

A policy is a frozen dataclass of hyper-parameters. What evolves is an explicit state that the
engine threads through the hooks, and what a policy may know arrives in ``ctx``:

* fixed depth: ``plan`` returns a constant (Leviathan et al., arXiv 2211.17192);
* batch-aware depth: ``plan`` looks at ``ctx.num_rows`` (vLLM, TensorRT-LLM);
* per-sequence depth: ``proceed`` looks at the signals of the token just drafted and stops the
  row after including it, or ``trim`` cuts a finished block by signals that precede each token.

The engine clamps the answer to what the row can still use and to nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Draft, LosslessClass, Signal, StepContext, Verdict

State = Any
"""A policy's own evolving record; ``None`` where nothing evolves."""


def require_depth(depth: int, name: str = "depth") -> None:
    """Refuse what is no depth.

    Raises:
        ValueError: ``depth`` is negative or not a whole number.
    """
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise ValueError(f"{name} must be a whole number, got {depth!r}")
    if depth < 0:
        raise ValueError(f"{name} must be >= 0, got {depth}")


class Policy(ABC):
    """Abstract; concrete policies are final. To tweak one, wrap it.

    All hooks are pure: they return new tensors and new states, and never change their arguments.
    The same arguments give the same answer.
    """

    needs_cost: ClassVar[bool] = False

    @property
    @abstractmethod
    def lossless_class(self) -> LosslessClass:
        """Why these settings leave the output law alone, or that they do not."""

    @property
    @abstractmethod
    def max_depth(self) -> int:
        """Largest depth ``plan`` can return; sizes the engine's buffers."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals the policy reads; the run is refused if the drafter lacks one."""
        return frozenset()

    def init(self, num_slots: int) -> State:
        """State before the first step; per-row entries are indexed by slot."""
        return None

    @abstractmethod
    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B] in [0, max_depth]: draft at most this far. 0 is plain decoding."""

    def proceed(self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: State) -> Tensor:
        """Bool [B]: go on after the token at depth k (from 1), which stays in the draft.

        Only drafters that draw one token after another ask. ``signals`` holds float [B, k] of the
        positions drafted so far, NaN where a row has none.
        """
        return torch.ones_like(ctx.slots, dtype=torch.bool)

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """Int [B] in [0, draft.lengths]: verify this much of the draft."""
        return draft.lengths

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """State after the step; everything in ``verdict`` is past from here on."""
        return state
