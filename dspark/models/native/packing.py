"""A ragged pass as the kernels read it: all its numbers in one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.models.base import PassRow
    from dspark.models.kv_cache import KVCache


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPass:
    """Token ids, positions, cache places, logits index, rows and page tables, one after another."""

    numbers: Tensor  # int64
    num_tokens: int
    num_logits: int
    num_rows: int

    @property
    def token_ids(self) -> Tensor:
        """Int [N]."""
        return self.numbers[: self.num_tokens]

    def addresses(self) -> dict[str, int]:
        """Where each array begins, by its name in the structure."""
        sizes = {
            "ids": self.num_tokens,
            "positions": self.num_tokens,
            "write": self.num_tokens,
            "logits_index": self.num_logits,
            "row": 4 * self.num_rows,
            "pages": 0,
        }
        starts, at = {}, self.numbers.data_ptr()
        for name, size in sizes.items():
            starts[name] = at
            at += 8 * size
        return starts


def pack(rows: list[PassRow], cache: KVCache, *, vocab_size: int) -> PackedPass:
    """The pass over ``rows``; the cache must own room for their new tokens.

    Raises:
        ValueError: a row reaches past the cache or asks for logits it has no tokens for, or a token is
            outside the vocabulary: the kernels would follow it into foreign memory.
    """
    ids: list[int] = []
    positions: list[int] = []
    write: list[int] = []
    logits: list[int] = []
    places: list[int] = []  # four numbers a row: first token, tokens, start, where its page table begins
    tables: list[int] = []
    for row in rows:
        stop = row.start + len(row.token_ids)
        if not (row.start >= 0 and stop <= cache.max_tokens and 0 <= row.num_logits <= len(row.token_ids)):
            raise ValueError(
                f"a row of a pass must lie in [0, {cache.max_tokens}) and have no more logits than tokens, "
                f"got slot {row.slot}: {len(row.token_ids)} tokens from {row.start}, {row.num_logits} logits"
            )
        places += (len(ids), len(row.token_ids), row.start, len(tables))
        tables += cache.pages(row.slot)
        ids += row.token_ids
        positions += range(row.start, stop)
        write += cache.token_index(row.slot, row.start, stop)
        logits += range(len(ids) - row.num_logits, len(ids))
    if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
        raise ValueError(
            f"token ids must lie in [0, {vocab_size}), got {min(ids)} to {max(ids)}; "
            "use the target's tokenizer"
        )
    numbers = [*ids, *positions, *write, *logits, *places, *tables]
    return PackedPass(
        numbers=torch.tensor(numbers, dtype=torch.int64, device="cpu"),
        num_tokens=len(ids),
        num_logits=len(logits),
        num_rows=len(rows),
    )
