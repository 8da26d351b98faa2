"""TETRIS: the whole batch's most likely tokens, up to a capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.estimators import survival
from dspark.policies.search import rank
from dspark.types import LosslessClass, Signal

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import Draft, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Tetris(Policy):
    """Draft ``depth + extra`` tokens a row, verify the ``depth`` a row that are likeliest overall.

    TETRIS (arXiv 2502.15197; https://github.com/ZhaoxuanWu/Tetris): a position ranks by the product of
    the draft probabilities of the row's drawn tokens up to it, and the best ``depth`` times the number
    of rows are verified; extra is 1 to 3 there. Ties go to the earlier position, then the earlier row.

    Class D: a token wins its place by its own probability, so likely tokens are verified more often
    than unlikely ones, and the output of rejection sampling is biased. It runs under coupled
    verification, greedily, or with a drafter that does not sample.

    Args:
        depth: tokens verified a row, on average.
        extra: tokens drafted beyond it.
        capacity: tokens verified over all rows, instead of ``depth`` a row.

    Raises:
        ValueError: a field is negative or not a whole number.
    """

    depth: int
    extra: int = 1
    capacity: int | None = None

    def __post_init__(self) -> None:
        require_depth(self.depth)
        require_depth(self.extra, "extra")
        if self.capacity is not None:
            require_depth(self.capacity, "capacity")

    @property
    def lossless_class(self) -> LosslessClass:
        """D."""
        return LosslessClass.SAMPLED

    @property
    def max_depth(self) -> int:
        """``depth + extra``."""
        return self.depth + self.extra

    @property
    def needs(self) -> frozenset[Signal]:
        """The drawn tokens' probabilities."""
        return frozenset({Signal.TOKEN_PROBABILITY})

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], ``depth + extra`` everywhere."""
        return torch.full_like(ctx.slots, self.max_depth)

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """Int [B]: each row's share of the capacity."""
        if draft.lengths.numel() == 0:
            return draft.lengths
        capacity = self.depth * ctx.num_rows if self.capacity is None else self.capacity
        probability = draft.signals[Signal.TOKEN_PROBABILITY].to(torch.float64)
        ranking = rank(survival(probability), draft.lengths)
        return ranking.lengths(torch.tensor(capacity, device=draft.lengths.device))
