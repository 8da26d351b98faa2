"""The contract of a target: one pass over a flattened, ragged batch against a cache of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from dspark.models.kv_cache import KVCache


EMBEDDING = -1
"""Stands for the embedding's output where a layer's number is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRow:
    """One row's share of a pass: ``token_ids`` follow ``start`` committed tokens."""

    slot: int
    start: int  # cached tokens before the pass; the first new token's position
    token_ids: list[int]
    num_logits: int  # logits of the last so many positions are needed


class Target(ABC):
    """A causal language model that the engine, or a draft-model drafter, runs."""

    vocab_size: int
    max_context: int
    eos_token_ids: tuple[int, ...]
    device: torch.device
    dtype: torch.dtype

    @abstractmethod
    def new_cache(self, num_slots: int, max_tokens: int) -> KVCache:
        """An empty cache for ``num_slots`` rows of up to ``max_tokens`` tokens."""

    @abstractmethod
    def forward(self, rows: list[PassRow], cache: KVCache) -> Tensor:
        """Float32 logits [M, V] of one pass over all rows' tokens, flattened without padding.

        ``M`` is the sum of ``num_logits``, in row order. Keys and values of all new tokens are
        written to the cache at ``start``...; the caller rewinds by starting lower next time.
        """

    def forward_with_features(
        self, rows: list[PassRow], cache: KVCache, layers: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """The logits of :meth:`forward`, and features float [N, len(layers) * hidden] of every new token.

        A feature is the output of a decoder layer, 0 being the first, or :data:`EMBEDDING`; the layers
        lie side by side in the order given, the tokens in row order (DSpark, arXiv 2607.05147).

        Raises:
            ValueError: this kind of target has no features, or no such layer.
        """
        raise ValueError(f"a {type(self).__name__} gives no features; use a drafter that needs none")
