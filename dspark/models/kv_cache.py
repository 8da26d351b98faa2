"""The paged key/value cache: preallocated pages, per-row block tables, rewind for free.

The cache keeps no lengths. A pass says where each row's new tokens start; whatever lies at or past
that position is overwritten, so rewinding after a rejection is starting lower next time.

Layout of every layer: ``[num_pages, page_size, num_kv_heads, head_dim]``, on every device. With one
page a row (the CPU layout) the pages of neighbouring rows are one strided view that attention
reads without a copy; with small pages rows share a pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What a model stores for each token."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    value_dim: int

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Bytes of keys and values of one token over all layers."""
        return self.num_layers * self.num_kv_heads * (self.head_dim + self.value_dim) * dtype.itemsize


class KVCache:
    """Keys and values of up to ``num_slots`` rows of up to ``max_tokens`` tokens each.

    Args:
        shape: what a token needs.
        num_slots: rows.
        max_tokens: longest row.
        page_size: tokens a page; ``max_tokens`` (one page a row) by default.
        num_pages: size of the pool; by default enough for every row at full length.
        scratch_tokens: room of one more slot, :attr:`scratch_slot`, for padding tokens of a pass: what
            they write must not land on a live page. It owns its pages for good.

    Raises:
        ValueError: a size is below 1.
    """

    def __init__(
        self,
        shape: CacheShape,
        *,
        num_slots: int,
        max_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
        page_size: int | None = None,
        num_pages: int | None = None,
        scratch_tokens: int = 0,
    ) -> None:
        if num_slots < 1 or max_tokens < 1:
            raise ValueError(f"a cache needs at least 1 row of 1 token, got {num_slots} rows of {max_tokens}")
        self.shape = shape
        self.num_slots, self.max_tokens = num_slots, max_tokens
        self.page_size = page_size or max_tokens
        self.pages_per_slot = -(-max_tokens // self.page_size)
        self.num_pages = num_pages or num_slots * self.pages_per_slot
        self.device = device
        self.one_page_a_row = self.pages_per_slot == 1 and self.num_pages == num_slots
        self.scratch_tokens, self.scratch_slot = scratch_tokens, num_slots
        num_scratch_pages = -(-scratch_tokens // self.page_size)
        size = (self.num_pages + num_scratch_pages, self.page_size, shape.num_kv_heads)
        layers = range(shape.num_layers)
        self.keys = [torch.zeros(*size, shape.head_dim, dtype=dtype, device=device) for _ in layers]
        self.values = [torch.zeros(*size, shape.value_dim, dtype=dtype, device=device) for _ in layers]
        if self.one_page_a_row:  # slot s owns page s for good, so that neighbours stay neighbours
            self._free: list[int] = []
            self._tables = [[slot] for slot in range(num_slots)]
        else:
            self._free = list(range(self.num_pages - 1, -1, -1))
            self._tables = [[] for _ in range(num_slots)]
        self._tables.append(list(range(self.num_pages, self.num_pages + num_scratch_pages)))
        self.table_width = max(self.pages_per_slot, num_scratch_pages)  # pages of the longest slot

    def num_free_tokens(self) -> int:
        """Tokens that unowned pages can still take."""
        return len(self._free) * self.page_size

    def reserve(self, slot: int, num_tokens: int) -> bool:
        """True once the slot owns pages for ``num_tokens``; False, and no change, if none are left."""
        assert num_tokens <= self.max_tokens, (
            f"slot {slot} would hold {num_tokens} > {self.max_tokens} tokens"
        )
        missing = -(-num_tokens // self.page_size) - len(self._tables[slot])
        if missing > len(self._free):
            return False
        for _ in range(missing):
            self._tables[slot].append(self._free.pop())
        return True

    @torch.inference_mode()
    def release(self, slot: int) -> None:
        """Empty the slot's pages and give them back to the pool.

        Masked keys have weight 0, and 0 times a leftover infinity would reach the next row.
        """
        for layer in (*self.keys, *self.values):
            for page in self._tables[slot]:
                layer[page].zero_()
        if not self.one_page_a_row:
            self._free.extend(reversed(self._tables[slot]))
            self._tables[slot] = []

    def pages(self, slot: int) -> list[int]:
        """The pages of a slot, in the order of its tokens."""
        return self._tables[slot]

    def token_index(self, slot: int, start: int, stop: int) -> list[int]:
        """Where tokens ``start`` to ``stop`` of a slot lie in the flattened pages."""
        table, size = self._tables[slot], self.page_size
        if len(table) == 1:
            base = table[0] * size
            return list(range(base + start, base + stop))
        return [table[at // size] * size + at % size for at in range(start, stop)]

    def write(self, layer: int, index: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [N, num_kv_heads, head_dim] at flattened token ``index`` [N]."""
        self.keys[layer].flatten(0, 1).index_copy_(0, index, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, index, values)

    def copy_tokens(self, source: int, target: int, num_tokens: int) -> None:
        """Give a slot the first tokens of another one, for rows that begin alike."""
        at = torch.tensor(self.token_index(source, 0, num_tokens), device=self.device)
        to = torch.tensor(self.token_index(target, 0, num_tokens), device=self.device)
        for layer in (*self.keys, *self.values):
            tokens = layer.flatten(0, 1)
            tokens.index_copy_(0, to, tokens[at])

    def read_range(self, layer: int, first: int, last: int, num_tokens: int) -> tuple[Tensor, Tensor]:
        """Views [last-first, num_kv_heads, num_tokens, dim] of slots ``first``..``last`` (one page a row)."""
        keys = self.keys[layer][first:last, :num_tokens].transpose(1, 2)
        values = self.values[layer][first:last, :num_tokens].transpose(1, 2)
        return keys, values

    def read_index(self, layer: int, index: Tensor) -> tuple[Tensor, Tensor]:
        """Copies [R, num_kv_heads, C, dim] of the tokens at flattened ``index`` [R, C]."""
        keys = self.keys[layer].flatten(0, 1)[index].transpose(1, 2)
        values = self.values[layer].flatten(0, 1)[index].transpose(1, 2)
        return keys, values
