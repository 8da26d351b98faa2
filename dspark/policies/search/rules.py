"""Where to stop on a curve of throughput: ``values[n]`` belongs to n verified tokens.

Each rule returns an int tensor without dimension, so that no value leaves the device. A tie goes
to the smaller number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def arg_max(values: Tensor, limit: Tensor | None = None) -> Tensor:
    """The best number of all, up to ``limit``.

    Looks at the whole curve. If that holds survivals of this very step, the answer for a position
    depends on tokens at and behind it, which biases sampling (DSpark, arXiv 2607.05147, Appendix A).
    """
    if limit is not None:
        numbers = torch.arange(values.numel(), device=values.device)
        values = torch.where(numbers <= limit, values, -torch.inf)
    return values.argmax()


def early_stop(values: Tensor, limit: Tensor | None = None) -> Tensor:
    """The last number before the first that is no improvement, up to ``limit``.

    The loop of DSpark's Algorithm 1 without the loop: as long as every number improved on the one
    before, the best so far is the one before. It is the maximum of all where the curve has one peak.
    """
    improves = values[1:] > values[:-1]
    if limit is not None:
        improves &= torch.arange(1, values.numel(), device=values.device) <= limit
    return improves.cumprod(dim=0).sum()


def buckets(values: Tensor, sizes: Tensor) -> Tensor:
    """The best of the numbers ``sizes`` [Q], ascending."""
    return sizes[values[sizes].argmax()]
