"""Per-row state, kept in one tensor indexed by slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext


def read_rows(store: Tensor, ctx: StepContext, fresh: float | None = None) -> Tensor:
    """[B, ...], each row's entry of ``store`` [num_slots, ...], on the device of the step.

    Args:
        store: one entry a slot.
        ctx: the step.
        fresh: what a new row finds; None lets it inherit what its slot holds.
    """
    rows = store.to(ctx.slots.device)[ctx.slots]
    if fresh is None:
        return rows
    is_new = ctx.is_new.reshape(-1, *[1] * (rows.ndim - 1))
    return rows.masked_fill(is_new, fresh)


def write_rows(store: Tensor, ctx: StepContext, rows: Tensor) -> Tensor:
    """A copy of ``store`` [num_slots, ...] in which the step's slots hold ``rows`` [B, ...]."""
    return torch.index_copy(store.to(rows.device), 0, ctx.slots, rows)
