"""The same depth for every row of every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(Policy):
    """Draft ``depth`` tokens, always; 0 is plain decoding (Leviathan et al., arXiv 2211.17192).

    Class A: the depth is known before anything is drafted.

    Raises:
        ValueError: ``depth`` is negative or not a whole number.
    """

    depth: int

    def __post_init__(self) -> None:
        require_depth(self.depth)

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """The depth itself."""
        return self.depth

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)
