"""The shapes that passes are padded to, so that few captured graphs serve all of them.

A pass of N tokens over R rows runs in the smallest bucket that holds it. What is missing becomes
padding: rows without a token, and one last row that takes the padding tokens and lives in the
cache's scratch slot. Depths change who has how many tokens, and never the shape.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.models.base import PassRow
from dspark.models.layout_varlen import PassShape

if TYPE_CHECKING:
    from dspark.models.kv_cache import KVCache

MAX_ROW_TOKENS = 64
"""Longest row of a captured pass: one block of queries of the attention kernel. Longer ones are prefill."""

TOKEN_BUCKETS = (1, 2, 4, *range(8, 64, 8), *range(64, 128, 16), *range(128, 256, 32), *range(256, 513, 64))
"""Gaps of at most 64, so that the padding tokens (63 at most) fit one row and the scratch slot."""

ROW_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A shape that is captured once: so many tokens, over up to so many rows."""

    num_tokens: int
    num_rows: int

    def shape(self, cache: KVCache) -> PassShape:
        """Sizes of the pass with its padding row; the logits of all tokens are computed."""
        return PassShape(
            num_tokens=self.num_tokens,
            num_rows=self.num_rows + 1,
            num_logits=self.num_tokens,
            pages_per_row=cache.table_width,
            max_q=MAX_ROW_TOKENS,
        )

    def pad(self, rows: list[PassRow], cache: KVCache) -> list[PassRow]:
        """``rows`` with empty rows and the padding row behind them."""
        slot = cache.scratch_slot
        missing = self.num_tokens - sum(len(row.token_ids) for row in rows)
        assert 0 <= missing <= cache.scratch_tokens, f"{missing} padding tokens"
        empty = PassRow(slot=slot, start=0, token_ids=[], num_logits=0)
        padding = PassRow(slot=slot, start=0, token_ids=[0] * missing, num_logits=0)
        return [*rows, *[empty] * (self.num_rows - len(rows)), padding]


def bucket_of(rows: list[PassRow], cache: KVCache) -> Bucket | None:
    """The bucket of a pass; None for a pass that is run as it is, because it is large or prefill."""
    num_tokens = sum(len(row.token_ids) for row in rows)
    if not 0 < num_tokens <= TOKEN_BUCKETS[-1] or len(rows) > ROW_BUCKETS[-1]:
        return None
    if max(len(row.token_ids) for row in rows) > MAX_ROW_TOKENS or cache.scratch_tokens < MAX_ROW_TOKENS:
        return None
    tokens = TOKEN_BUCKETS[bisect_left(TOKEN_BUCKETS, num_tokens)]
    return Bucket(tokens, ROW_BUCKETS[bisect_left(ROW_BUCKETS, len(rows))])
