"""The contract of a drafter: propose tokens for a batch of rows, and stay in step with the target.

A drafter never learns about acceptance directly. Before every draft it can read each row's
committed tokens; whatever it caches must be brought in step with them (lazily, in ``propose``, so
that a depth-0 step costs nothing). This makes any sequence of depths safe by construction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from dspark.models.base import PassRow
    from dspark.types import Draft, Signal


class DraftSampler(Protocol):
    """Draws draft tokens the way the verification rule wants them drawn.

    One object a step, made by the engine: it holds the rows' temperatures, filters, penalties and
    random streams, so that ``q`` is by construction the distribution that was sampled from.
    """

    @property
    def needs_q(self) -> bool:
        """False where verification only compares tokens (greedy, coupled)."""
        ...

    def draw(self, rows: Tensor, k: int, logits: Tensor, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens int [R] at depth k (from 1), and q float [R, V], or None if not needed.

        Args:
            rows: int [R], which rows of the step's batch ``logits`` belong to.
            k: depth of the position drawn.
            logits: float [R, V], the drafter's raw logits.
            drafted: int [R, k-1], the tokens these rows drafted before in this step.
        """
        ...


class Proceed(Protocol):
    """The policy's early stop, bound to the step's context and state by the engine."""

    def __call__(self, k: int, signals: Mapping[Signal, Tensor]) -> Tensor:
        """Bool [B]; ``signals`` holds float [B, k], NaN where a row has no token."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBatch:
    """The decode rows of a step, as a drafter sees them."""

    slots: Tensor  # [B]
    tokens: Sequence[Sequence[int]]  # B rows: prompt and output so far; read, never changed
    lengths: Tensor  # [B] len(tokens[i])
    sampler: DraftSampler
    seeds: Tensor  # [B] request seeds, for drafters with random streams of their own
    needs: frozenset[Signal] = frozenset()  # signals that somebody will read; others may be left out


class Drafter(ABC):
    """Abstract; concrete drafters are final."""

    signals: frozenset[Signal]
    deterministic: bool  # True: drafts are point masses, ``Draft.q`` is None
    autoregressive: bool  # True: asks ``proceed`` after every token
    vocab_size: int | None  # None: knows no vocabulary of its own
    max_context: int | None  # None: unlimited
    max_depth: int | None = None  # tokens that a draft can have; None: as many as planned
    feature_layers: tuple[int, ...] = ()  # of the target; what `take_features` is handed after every pass

    @abstractmethod
    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """Allocate per-slot state for rows of up to ``max_context`` tokens; forget what was there."""

    @abstractmethod
    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """Draft at most ``plan`` [B] tokens a row; rows with plan 0 cost and change nothing."""

    def take_features(self, rows: Sequence[PassRow], features: Tensor) -> None:
        """Keep the target's features of a pass; called after every pass if ``feature_layers`` is not
        empty and the policy ever drafts.

        Rejected tokens are among them: whatever lies at or past a row's last committed position will be
        overwritten by the next pass, whose rows start there.

        Args:
            rows: of the pass: prompt chunks, and decode rows with their verified drafts.
            features: float [N, len(feature_layers) * hidden], the rows' tokens one after another.
        """
        return None

    @abstractmethod
    def release(self, slot: int) -> None:
        """Forget a slot: its row has left."""
