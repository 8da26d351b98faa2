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


def pack(rows: list[PassRow], cache: KVCache) -> PackedPass:
    """The pass over ``rows``; the cache must own room for their new tokens."""
    ids: list[int] = []
    positions: list[int] = []
    write: list[int] = []
    logits: list[int] = []
    places: list[int] = []  # four numbers a row: first token, tokens, start, where its page table begins
    tables: list[int] = []
    for row in rows:
        stop = row.start + len(row.token_ids)
        places += (len(ids), len(row.token_ids), row.start, len(tables))
        tables += cache.pages(row.slot)
        ids += row.token_ids
        positions += range(row.start, stop)
        write += cache.token_index(row.slot, row.start, stop)
        logits += range(len(ids) - row.num_logits, len(ids))
    return PackedPass(
        numbers=torch.tensor([*ids, *positions, *write, *logits, *places, *tables]),
        num_tokens=len(ids),
        num_logits=len(logits),
        num_rows=len(rows),
    )
