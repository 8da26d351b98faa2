"""How large a pass is: what FLOPs and bytes of a forward pass depend on besides the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Number = float | int | Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSize:
    """Sizes of one pass or of many; float64 tensors of one shape.

    Rows of a pass differ in length, and a cost model is told sums only, so a layer whose cost is
    not proportional to the context (a sliding window) is given the mean context of the rows.
    """

    rows: Tensor
    tokens: Tensor  # N, of all rows
    context_tokens: Tensor  # cached before the pass, of all rows

    @classmethod
    def of(cls, *, rows: Number, tokens: Number, context_tokens: Number) -> PassSize:
        """The sizes as float64 tensors, broadcast to one shape.

        A pass without decode rows (prompt chunks only) counts as one row, so that what is read a row
        is read once.

        Raises:
            ValueError: a size is negative.
        """
        given = {"rows": rows, "tokens": tokens, "context_tokens": context_tokens}
        sizes = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in given.items()}
        for name, size in sizes.items():
            if bool((size < 0).any()):
                raise ValueError(f"{name} of a pass must be >= 0, got {size.min().item():g}")
        num_rows, num_tokens, num_cached = torch.broadcast_tensors(*sizes.values())
        return cls(
            rows=torch.where(num_rows == 0, 1.0, num_rows), tokens=num_tokens, context_tokens=num_cached
        )

    @property
    def tokens_per_row(self) -> Tensor:
        """Mean new tokens of a row."""
        return self.tokens / self.rows

    @property
    def context_per_row(self) -> Tensor:
        """Mean cached tokens of a row."""
        return self.context_tokens / self.rows

    @property
    def seen_per_token(self) -> Tensor:
        """Mean tokens up to and including a new one: ``c + (m + 1) / 2`` for m new ones behind c cached."""
        return self.context_per_row + (self.tokens_per_row + 1) / 2
