"""Predictions whose truth is known, for tests of calibration."""

from __future__ import annotations

import torch

from dspark.analysis.predictions import Predictions

NUM_REQUESTS = 40


def predictions(conditional: list[list[float]], verified: list[int], accepted: list[int], ids=None):
    """Predictions as written down; a draft of each request "0", "1", ... by default."""
    return Predictions(
        request_ids=tuple(ids or map(str, range(len(verified)))),
        conditional=torch.tensor(conditional, dtype=torch.float64),
        verify_lengths=torch.tensor(verified),
        accepted=torch.tensor(accepted),
    )


def miscalibrated(temperatures: list[float], *, num_drafts: int, seed: int = 0) -> Predictions:
    """Drafts accepted by law c, reported as ``sigmoid(T_k · logit(c))``: T_k is what repairs position k."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_drafts, len(temperatures))
    logit = 1.0 + 1.2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    accepts = torch.rand(shape, generator=generator, dtype=torch.float64) < torch.sigmoid(logit)
    return Predictions(
        request_ids=tuple(str(i % NUM_REQUESTS) for i in range(num_drafts)),
        conditional=torch.sigmoid(logit * torch.tensor(temperatures, dtype=torch.float64)),
        verify_lengths=torch.full((num_drafts,), len(temperatures)),
        accepted=accepts.long().cumprod(1).sum(1),
    )
