"""The stability signal of DSDE (arXiv 2509.01083): recent over longer-term variance of divergence.

Windows hold a row's last divergences, the newest last; places not yet filled are NaN and in front.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEADY = 1e-9
"""Variance, in nats squared, up to which a window counts as constant; rounding stays far below."""


def appended(windows: Tensor, values: Tensor, counts: Tensor) -> Tensor:
    """Float64 [B, W]: the windows with each row's first ``counts`` of ``values`` put at their end.

    Args:
        windows: float64 [B, W].
        values: float [B, K]; what is behind ``counts`` is not read.
        counts: int [B] in [0, K].
    """
    joined = torch.cat([windows, values.to(windows.dtype)], dim=1)
    # a full window behind its own end: W places, shifted by what is new
    places = torch.arange(windows.shape[1], device=windows.device) + counts[:, None]
    return joined.gather(1, places)


def weighted_variance(windows: Tensor, decay: float) -> Tensor:
    """Float64 [B], the variance with weight ``decay ** age``, the newest having age 0; 0 if all is NaN."""
    age = torch.arange(windows.shape[1] - 1, -1, -1, device=windows.device)
    known = ~windows.isnan()
    weights = known * torch.pow(decay, age.to(torch.float64))
    total = weights.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    values = windows.where(known, 0.0)
    mean = (weights * values).sum(1, keepdim=True) / total
    return ((weights * (values - mean) ** 2).sum(1, keepdim=True) / total).squeeze(1)


def variance_ratio(windows: Tensor, short: int, decay: float) -> Tensor:
    """Float64 [B], WVIR: variance of the last ``short`` divergences over that of the whole window.

    1 where the whole window does not vary (``STEADY``): nothing changes.
    """
    recent = weighted_variance(windows[:, -short:], decay)
    whole = weighted_variance(windows, decay)
    return torch.where(whole > STEADY, recent / whole, 1.0)
