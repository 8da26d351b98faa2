"""The layout of a flattened, ragged pass for attention over ragged rows and pages (``varlen``).

Attention sees all rows in one call: where each row's queries start, how many keys it has and on
which pages they lie. All of it is integers, built on the host in one block and copied to the device
at once, without waiting for it; the tensors are views of that block. A block of a given shape can be
filled again, which is what a captured graph needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.models.base import PassRow
    from dspark.models.kv_cache import KVCache


@dataclass(frozen=True, slots=True, kw_only=True)
class PassShape:
    """Sizes of a pass; what depends on nothing else can be captured."""

    num_tokens: int  # N
    num_rows: int  # R
    num_logits: int  # M
    pages_per_row: int  # P
    max_q: int  # no row has more new tokens

    def fields(self) -> dict[str, tuple[type[np.integer], tuple[int, ...]]]:
        """Type and shape of every tensor of the block; 8-byte ones first, so that all are aligned."""
        return {
            "token_ids": (np.int64, (1, self.num_tokens)),
            "positions": (np.int64, (1, self.num_tokens)),
            "write_index": (np.int64, (self.num_tokens,)),
            "logits_index": (np.int64, (self.num_logits,)),
            "cu_seq_q": (np.int32, (self.num_rows + 1,)),
            "cu_seq_k": (np.int32, (self.num_rows + 1,)),
            "seqused_k": (np.int32, (self.num_rows,)),
            "block_table": (np.int32, (self.num_rows, self.pages_per_row)),
        }


@dataclass(slots=True, kw_only=True, eq=False)
class VarlenLayout:
    """A flattened pass: its tokens, where they go, and the arguments of the attention call."""

    shape: PassShape
    cache: KVCache
    block: Tensor  # uint8, all of the below
    token_ids: Tensor  # int64 [1, N]
    positions: Tensor  # int64 [1, N]
    write_index: Tensor  # int64 [N] into the flattened cache
    logits_index: Tensor  # int64 [M] into the pass
    cu_seq_q: Tensor  # int32 [R + 1]
    cu_seq_k: Tensor  # int32 [R + 1]
    seqused_k: Tensor  # int32 [R]
    block_table: Tensor  # int32 [R, P]
    layers_seen: list[int] = field(default_factory=list)  # one entry a write, of a pass run in Python

    @property
    def max_k(self) -> int:
        """No row of this cache has more keys; the same for every pass, as the kernel may depend on it."""
        return self.shape.pages_per_row * self.cache.page_size

    def fill(self, rows: list[PassRow]) -> None:
        """Make it the layout of ``rows``: as many rows and tokens as the shape says.

        Fewer logits than the shape has are completed by repeats of the last.
        """
        columns = _columns(rows, self.cache, self.shape)
        host = torch.empty(self.block.numel(), dtype=torch.uint8, pin_memory=self.block.is_cuda)
        data, at = host.numpy(), 0
        for name, (kind, size) in self.shape.fields().items():
            stop = at + int(np.prod(size)) * np.dtype(kind).itemsize
            data[at:stop].view(kind)[:] = columns[name]
            at = stop
        # a pinned block returns to torch's host allocator only once the copy is done
        self.block.copy_(host, non_blocking=True)
        self.layers_seen.clear()


def empty_layout(shape: PassShape, cache: KVCache) -> VarlenLayout:
    """A layout to be filled, on the cache's device."""
    fields = shape.fields()
    sizes = {name: int(np.prod(size)) * np.dtype(kind).itemsize for name, (kind, size) in fields.items()}
    block = torch.empty(sum(sizes.values()), dtype=torch.uint8, device=cache.device)
    parts = dict(zip(fields, block.split(list(sizes.values())), strict=True))
    kinds = {np.int64: torch.int64, np.int32: torch.int32}
    views: dict[str, Any] = {
        name: parts[name].view(kinds[kind]).view(size) for name, (kind, size) in fields.items()
    }
    return VarlenLayout(shape=shape, cache=cache, block=block, **views)


def build_varlen_layout(rows: list[PassRow], cache: KVCache) -> VarlenLayout:
    """The layout of a pass over ``rows``; one logit at least, because models want an index.

    Args:
        rows: in pass order.
        cache: must already own room for the new tokens.
    """
    shape = PassShape(
        num_tokens=sum(len(row.token_ids) for row in rows),
        num_rows=len(rows),
        num_logits=max(1, sum(row.num_logits for row in rows)),
        pages_per_row=cache.table_width,
        max_q=max(len(row.token_ids) for row in rows),
    )
    layout = empty_layout(shape, cache)
    layout.fill(rows)
    return layout


def _columns(rows: list[PassRow], cache: KVCache, shape: PassShape) -> dict[str, list[int]]:
    """The integers of every field, by name."""
    tokens: list[int] = []
    positions: list[int] = []
    write: list[int] = []
    logits: list[int] = []
    table: list[int] = []
    for row in rows:
        stop = row.start + len(row.token_ids)
        tokens += row.token_ids
        positions += range(row.start, stop)
        write += cache.token_index(row.slot, row.start, stop)
        logits += range(len(tokens) - row.num_logits, len(tokens))
        pages = cache.pages(row.slot)
        table += pages + [pages[0]] * (shape.pages_per_row - len(pages))  # past the end: never read
    assert len(tokens) == shape.num_tokens, f"{len(tokens)} tokens in a pass of {shape.num_tokens}"
    assert len(rows) == shape.num_rows, f"{len(rows)} rows in a pass of {shape.num_rows}"
    last = logits[-1] if logits else len(tokens) - 1
    used = [row.start + len(row.token_ids) for row in rows]
    return {
        "token_ids": tokens,
        "positions": positions,
        "write_index": write,
        "logits_index": logits + [last] * (shape.num_logits - len(logits)),
        "cu_seq_q": list(accumulate((len(row.token_ids) for row in rows), initial=0)),
        "cu_seq_k": list(accumulate(used, initial=0)),
        "seqused_k": used,
        "block_table": table,
    }
