"""The reference of ``torch.nn.attention.varlen.varlen_attn`` with a paged cache, in plain torch.

The kernel exists on CUDA only. This function takes the same arguments and follows the same
definition, so that whatever drives the kernel is tested without a device, and the kernel is tested
against it on one. It goes row by row and is slow.

Shapes: T queries of R rows; pages ``[num_pages, page_size, Hkv, D]``; H is a multiple of Hkv.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def varlen_attn_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor,
    block_table: Tensor,
    num_splits: int | None = None,
) -> Tensor:
    """Outputs [T, H, D] in the query's dtype; scores and sums are float32.

    Args:
        query: [T, H, D], the rows one after the other.
        key: pages of all rows.
        value: pages of all rows.
        cu_seq_q: int32 [R + 1], where each row's queries start; queries past the last entry belong to
            no row and get zeros.
        cu_seq_k: int32 [R + 1], the running sum of ``seqused_k``; the pages make it redundant.
        max_q: no row has more queries; the kernel's grid is made for so many.
        max_k: no row has more keys.
        scale: of the scores.
        window_size: (left, right): query t sees keys t - left to t + right, -1 for no bound. The last
            query of a row stands at its last key.
        enable_gqa: H may be larger than Hkv.
        seqused_k: int32 [R], keys of each row.
        block_table: int32 [R, P], the pages of each row in order.
        num_splits: of the kernel's sum over keys; the reference sums at once.
    """
    starts, counts = cu_seq_q.tolist(), seqused_k.tolist()
    page_size, num_kv_heads = key.shape[1], key.shape[2]
    lengths = [stop - start for start, stop in pairwise(starts)]
    assert enable_gqa or query.shape[1] == num_kv_heads, "grouped heads without enable_gqa"
    assert max(lengths, default=0) <= max_q, f"{max(lengths)} queries in a row, max_q is {max_q}"
    assert max(counts, default=0) <= max_k, f"{max(counts)} keys in a row, max_k is {max_k}"
    assert cu_seq_k.diff().tolist() == counts, "cu_seq_k and seqused_k disagree"
    out = torch.zeros(query.shape[0], query.shape[1], value.shape[3], dtype=query.dtype, device=query.device)
    for row, (start, length, count) in enumerate(zip(starts, lengths, counts, strict=False)):
        if length == 0 or count == 0:
            continue
        pages = block_table[row, : -(-count // page_size)].long()
        k = key[pages].flatten(0, 1)[:count].float()  # [C, Hkv, D]
        v = value[pages].flatten(0, 1)[:count].float()
        q = query[start : start + length].float().unflatten(1, (num_kv_heads, -1))  # [Q, Hkv, H/Hkv, D]
        scores = torch.einsum("qhgd,chd->hgqc", q, k) * scale
        seen = _seen(length, count, window_size, query.device)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        weights = torch.where(seen.any(-1, keepdim=True), weights, 0.0)  # who sees no key gets zeros
        mixed = torch.einsum("hgqc,chd->qhgd", weights, v).flatten(1, 2)
        out[start : start + length] = mixed.to(query.dtype)
    return out


def _seen(num_queries: int, num_keys: int, window: tuple[int, int], device: torch.device) -> Tensor:
    """Bool [Q, C]; queries are aligned with the end of the keys."""
    left, right = window
    at = torch.arange(num_queries, device=device)[:, None] + (num_keys - num_queries)
    keys = torch.arange(num_keys, device=device)
    seen = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    if left >= 0:
        seen &= keys >= at - left
    if right >= 0:
        seen &= keys <= at + right
    return seen
