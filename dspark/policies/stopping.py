"""Where a draft ends when the drafter is no longer sure: shared by the policies that stop on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def num_leading(sure: Tensor) -> Tensor:
    """Int [B]: how many positions before the first False of ``sure``, bool [B, K]."""
    return sure.cumprod(dim=1).sum(dim=1)


def stop_after(sure: Tensor, lengths: Tensor) -> Tensor:
    """Int [B]: each draft up to its first unsure position, that one included.

    Whether position k is verified depends on positions before k only, so the rule is of class B
    whatever ``sure`` looked at. A drafter that asked ``proceed`` has stopped there already.

    Args:
        sure: bool [B, K]; what it says behind ``lengths`` does not matter.
        lengths: int [B], drafted tokens.
    """
    return torch.minimum(lengths, num_leading(sure) + 1)
