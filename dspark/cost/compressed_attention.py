"""The attention of DeepSeek-V4: a short window, and a long context in compressed entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dspark.cost.mixers import Mixer

if TYPE_CHECKING:
    from dspark.cost.pass_size import PassSize


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention(Mixer):
    """One key/value vector a token for all heads, low-rank queries, a grouped low-rank output.

    ``ratio`` tokens make one entry of the compressed context. With ``index_heads`` (CSA) an indexer
    scores all entries and each token sees the best ``index_top``; without (HCA) it sees all. Ratio 0
    is a sliding window alone. The structure is that of ``DeepseekV4Attention`` in transformers.

    Two tokens of a row may choose different entries: a pass reads ``tokens · index_top`` of them, or
    all if that is less, which is the most it can be.
    """

    num_heads: int
    head_dim: int
    query_rank: int
    output_groups: int
    output_rank: int  # of a group
    window: int
    ratio: int = 0
    index_heads: int = 0
    index_head_dim: int = 0
    index_top: int = 0

    def matrix_parameters(self, hidden: int) -> int:
        """Queries down and up, keys, output down and up; compressor, indexer."""
        width, output = self.num_heads * self.head_dim, self.output_groups * self.output_rank
        own = self.query_rank * (hidden + width) + hidden * self.head_dim
        own += width // self.output_groups * output + output * hidden
        if not self.ratio:
            return own
        # values and gates of the compressor; two series of each where windows overlap (CSA)
        own += 2 * hidden * self._series * self.head_dim
        if self.index_heads:
            own += 2 * hidden * self._series * self.index_head_dim
            own += self.index_heads * (self.query_rank * self.index_head_dim + hidden)
        return own

    def vector_parameters(self, hidden: int) -> int:
        """Norms, sinks, position biases of the compressors."""
        own = self.query_rank + self.head_dim + self.num_heads
        if self.ratio:
            own += (self.ratio * self._series + 1) * self.head_dim
        if self.index_heads:
            own += (self.ratio * self._series + 1) * self.index_head_dim
        return own

    def context_flops(self, size: PassSize) -> Tensor:
        """Scores and weighted sums over window and entries, and the indexer's scores."""
        entries = self._entries(size.seen_per_token)
        chosen = entries.clamp(max=self.index_top) if self.index_heads else entries
        seen = size.seen_per_token.clamp(max=self.window) + chosen
        return 4 * self.num_heads * self.head_dim * seen + 2 * self._index_width * entries

    def cache_bytes(self, size: PassSize, bytes_per_value: int) -> Tensor:
        """Window, chosen entries and all index keys are read; the new tokens and their entries written."""
        entries = self._entries(size.context_per_row)
        chosen = entries.minimum(size.tokens_per_row * self.index_top) if self.index_heads else entries
        read = self.head_dim * (size.context_per_row.clamp(max=self.window) + chosen)
        read = read + self.index_head_dim * entries
        written = self.head_dim * size.tokens_per_row + self._entry_width * self._entries(size.tokens_per_row)
        return bytes_per_value * (read + written)

    def kv_bytes_per_token(self, bytes_per_value: int) -> float:
        """A vector in the window, and a token's share of a compressed entry."""
        share = self._entry_width / self.ratio if self.ratio else 0.0
        return bytes_per_value * (self.head_dim + share)

    def held_bytes(self, context_tokens: float, bytes_per_value: int) -> float:
        """The window and all entries."""
        entries = context_tokens / self.ratio if self.ratio else 0.0
        held = self.head_dim * min(context_tokens, self.window) + self._entry_width * entries
        return bytes_per_value * held

    def _entries(self, tokens: Tensor) -> Tensor:
        return tokens / self.ratio if self.ratio else torch.zeros_like(tokens)

    @property
    def _series(self) -> int:
        return 2 if self.index_heads else 1

    @property
    def _entry_width(self) -> int:
        return self.head_dim + self.index_head_dim

    @property
    def _index_width(self) -> int:
        return self.index_heads * self.index_head_dim
