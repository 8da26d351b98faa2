"""One depth for the whole batch: stop once no row is sure of its draft any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.stopping import num_leading
from dspark.types import LosslessClass, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Draft, StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceStop(Policy):
    """Draft on while any row's top-1 probabilities are all at least ``threshold``.

    The rule of vLLM's ``confidence_stop`` (https://github.com/vllm-project/vllm,
    ``vllm/v1/worker/gpu/spec_decode/confidence_stop.py``). A row's chain lives as long as it has been
    sure at every position. The first depth at which no chain lives ends the drafts of all rows and is
    dropped, but one token is verified in any case. So a row is verified as deep as the surest row of
    the batch allows: a batch that drafts together pays for the deepest of them.

    Class C: a position is dropped by draft distributions, which do not depend on the tokens drawn from
    them; that is why the top-1 probability is compared and not the drawn token's.

    Args:
        depth: draft at most this far.
        threshold: in [0, 1]; 0 never stops. vLLM has no default.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 8
    threshold: float = 0.4

    def __post_init__(self) -> None:
        require_depth(self.depth)
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be in [0, 1], got {self.threshold}")

    @property
    def lossless_class(self) -> LosslessClass:
        """C."""
        return LosslessClass.PRE_TOKEN

    @property
    def max_depth(self) -> int:
        """``depth``, reached while a chain lives."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The top-1 probability."""
        return frozenset({Signal.TOP1_PROBABILITY})

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def proceed(self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: State) -> Tensor:
        """Bool [B], the same for all rows: a chain lives at depth k."""
        return (self._num_alive(signals) == k).expand(ctx.num_rows)

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """Int [B]: the draft up to the last depth at which a chain lived, but one token at least."""
        return torch.minimum(draft.lengths, self._num_alive(draft.signals).clamp(min=1))

    def _num_alive(self, signals: Mapping[Signal, Tensor]) -> Tensor:
        """Int scalar: depths at which a chain lives; a chain that was not drafted (NaN) does not."""
        leading = num_leading(signals[Signal.TOP1_PROBABILITY] >= self.threshold)
        return torch.cat([leading, leading.new_zeros(1)]).max()
