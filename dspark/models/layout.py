"""How a flattened, ragged pass maps onto rows, cache and attention calls.

The linear layers see one ``[1, N]`` pass. Attention sees groups of rows: all short rows (decode
and verification) in one call, padded only there and only to the longest of them, and each long row
(prefill) in a call of its own. Everything here is computed once a pass, not once a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dspark.models.base import PassRow
    from dspark.models.kv_cache import KVCache

SHORT_ROW_TOKENS = 32
"""Rows of up to so many new tokens share an attention call."""


@dataclass(slots=True, kw_only=True)
class AttentionGroup:
    """Rows that one attention call serves: R rows of up to Q queries over C cached tokens."""

    query_index: Tensor | None  # int [R, Q] into the flattened pass; None: the reshape suffices
    output_index: Tensor | None  # int [valid] into the R*Q outputs; None: all of them, in order
    query_slice: slice  # the group's tokens in the flattened pass
    num_rows: int
    num_queries: int
    num_keys: int
    positions: Tensor  # int [R, Q]; 0 on padding, which then sees one key and is dropped
    slot_range: tuple[int, int] | None  # cache rows as a view
    key_index: Tensor | None  # int [R, C] flattened cache index otherwise
    _masks: dict[int | None, Tensor] = field(default_factory=dict)

    def visible(self, window: int | None) -> Tensor:
        """Bool [R, 1, Q, C]: key j is seen by the query at position t iff t - window < j <= t."""
        keys = torch.arange(self.num_keys, device=self.positions.device)
        at = self.positions[:, None, :, None]
        seen = keys <= at
        return seen if window is None else seen & (keys > at - window)

    def bias(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Additive mask [R, 1, Q, C] of the layer type with this sliding window, made once a pass."""
        if window not in self._masks:
            seen = self.visible(window)
            self._masks[window] = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
                ~seen, -torch.inf
            )
        return self._masks[window]

    def gather_queries(self, flat: Tensor) -> Tensor:
        """Queries [R, H, Q, D] of the flattened ``[N, H, D]``."""
        if self.query_index is None:
            rows = flat[self.query_slice].unflatten(0, (self.num_rows, self.num_queries))
        else:
            rows = flat[self.query_index]
        return rows.transpose(1, 2)

    def scatter_outputs(self, out: Tensor) -> Tensor:
        """Flattened outputs [n, H, D], in pass order, of ``[R, H, Q, D]``."""
        flat = out.transpose(1, 2).flatten(0, 1)
        return flat if self.output_index is None else flat[self.output_index]


@dataclass(slots=True, kw_only=True)
class PassLayout:
    """A flattened pass: its tokens, where they go, and who attends to what."""

    token_ids: Tensor  # int [1, P], P >= N with padding at the end
    positions: Tensor  # int [1, P]
    num_tokens: int  # N
    write_index: Tensor  # int [N] into the flattened cache
    logits_index: Tensor  # int [M padded] into the pass
    num_logits: int  # M
    groups: list[AttentionGroup]
    cache: KVCache
    layers_seen: list[int] = field(default_factory=list)  # one entry a write


def build_layout(rows: list[PassRow], cache: KVCache, *, pad_tokens: int, pad_logits: int) -> PassLayout:
    """The layout of a pass over ``rows``.

    Args:
        rows: in pass order.
        cache: must already own room for the new tokens.
        pad_tokens: padding tokens appended to the pass (they attend to nothing and are not cached).
        pad_logits: repeated entries appended to the logits index.
    """
    device = cache.device
    tokens: list[int] = []
    positions: list[int] = []
    write: list[int] = []
    logits: list[int] = []
    for row in rows:
        count = len(row.token_ids)
        tokens += row.token_ids
        positions += range(row.start, row.start + count)
        write += cache.token_index(row.slot, row.start, row.start + count)
        logits += range(len(tokens) - row.num_logits, len(tokens))
    num_tokens, num_logits = len(tokens), len(logits)
    tokens += [0] * pad_tokens
    positions += [0] * pad_tokens
    logits += [num_tokens - 1] * pad_logits
    return PassLayout(
        token_ids=torch.tensor([tokens], device=device),
        positions=torch.tensor([positions], device=device),
        num_tokens=num_tokens,
        write_index=torch.tensor(write, device=device),
        logits_index=torch.tensor(logits, dtype=torch.int64, device=device),
        num_logits=num_logits,
        groups=_groups(rows, cache),
        cache=cache,
    )


def _groups(rows: list[PassRow], cache: KVCache) -> list[AttentionGroup]:
    """Runs of short rows in slot order share a group; a long row has its own."""
    groups: list[AttentionGroup] = []
    run: list[PassRow] = []
    offset = 0

    def close() -> None:
        nonlocal offset, run
        if run:
            groups.append(_group(run, offset, cache))
            offset += sum(len(row.token_ids) for row in run)
            run = []

    for row in rows:
        alone = len(row.token_ids) > SHORT_ROW_TOKENS
        if alone or (run and row.slot <= run[-1].slot):
            close()
        run.append(row)
        if alone:
            close()
    close()
    return groups


def _group(rows: list[PassRow], offset: int, cache: KVCache) -> AttentionGroup:
    """One group; rows that lie in the cache with few holes between them are read as one view."""
    first, last = rows[0].slot, rows[-1].slot + 1
    as_view = cache.one_page_a_row and last - first <= 2 * len(rows)
    num_rows = last - first if as_view else len(rows)
    num_queries = max(len(row.token_ids) for row in rows)
    num_keys = max(row.start + len(row.token_ids) for row in rows)
    query_index = [[0] * num_queries for _ in range(num_rows)]
    positions = [[0] * num_queries for _ in range(num_rows)]
    output_index: list[int] = []
    at = offset
    for place, row in enumerate(rows):
        r = row.slot - first if as_view else place
        count = len(row.token_ids)
        query_index[r][:count] = range(at, at + count)
        positions[r][:count] = range(row.start, row.start + count)
        output_index += range(r * num_queries, r * num_queries + count)
        at += count
    dense = at - offset == num_rows * num_queries
    device = cache.device
    key_index = None
    if not as_view:
        # keys past a row's own end are masked, any valid cache index will do for them
        index = [cache.token_index(row.slot, 0, row.start + len(row.token_ids)) for row in rows]
        key_index = torch.tensor([i + [i[0]] * (num_keys - len(i)) for i in index], device=device)
    return AttentionGroup(
        query_index=None if dense else torch.tensor(query_index, device=device),
        output_index=None if dense else torch.tensor(output_index, device=device),
        query_slice=slice(offset, at),
        num_rows=num_rows,
        num_queries=num_queries,
        num_keys=num_keys,
        positions=torch.tensor(positions, device=device),
        slot_range=(first, last) if as_view else None,
        key_index=key_index,
    )
