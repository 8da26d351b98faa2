"""Sequential temperature scaling: make survival mean what it says (arXiv 2607.05147, STS).

``T_k`` softens (above 1) or sharpens (below 1) the conditional acceptance of position k,
``c' = sigmoid(logit(c) / T_k)``. The temperatures are found left to right: that of position k
minimises the calibration error of the *product* over the positions up to k, the earlier ones kept.
Every ``T_k`` is positive, so the order of the conditionals of a position does not change.

Shapes: ``n`` recorded drafts, ``K`` positions, ``G`` temperatures tried.
"""

from __future__ import annotations

import torch
from torch import Tensor

GRID = tuple(2.0 ** (octave / 8) for octave in range(-24, 25))
"""Temperatures tried: 49 from 1/8 to 8, evenly spaced on a logarithmic scale, 1 in their middle."""

NUM_BINS = 15
"""Bins of the calibration error, as in Guo et al. (arXiv 1706.04599)."""


def scaled(conditional: Tensor, temperature: Tensor | float) -> Tensor:
    """Float64 ``sigmoid(logit(c) / T)``; shapes broadcast. 0, 1 and NaN stay what they are."""
    return torch.sigmoid(torch.logit(conditional.double()) / temperature)


def expected_calibration_error(probability: Tensor, label: Tensor, num_bins: int = NUM_BINS) -> Tensor:
    """Float64 [G], or a scalar for [n]: how far off the probabilities are, on average.

    The probabilities are sorted into ``num_bins`` equally wide bins; the error is the distance of a
    bin's mean probability from its share of true labels, averaged over all samples (arXiv 1706.04599,
    eq. 3).

    Args:
        probability: float [G, n] or [n], in [0, 1].
        label: bool [n], n >= 1.
        num_bins: bins of [0, 1].

    Raises:
        ValueError: there is no probability, or one is outside [0, 1].
    """
    rows = torch.atleast_2d(probability.double())
    if rows.shape[1] == 0:
        raise ValueError("a calibration error needs at least one probability, got none: record more drafts")
    if not bool(((rows >= 0) & (rows <= 1)).all()):
        raise ValueError("probabilities must be in [0, 1], got one that is not")
    bins = (rows * num_bins).long().clamp_(max=num_bins - 1)  # a probability of 1 is in the last bin
    excess = rows - label.double()
    sums = torch.zeros(rows.shape[0], num_bins, dtype=torch.float64, device=rows.device)
    errors = sums.scatter_add_(1, bins, excess).abs_().sum(dim=1) / rows.shape[1]
    return errors if probability.dim() == 2 else errors[0]


def fit_temperatures(
    conditional: Tensor,
    accepted: Tensor,
    verified: Tensor | None = None,
    *,
    grid: tuple[float, ...] = GRID,
    num_bins: int = NUM_BINS,
) -> tuple[float, ...]:
    """``T_1...T_K``, each the best of ``grid`` for the survival up to its position.

    A draft is a sample of position k if k of its tokens were verified; its label is that all k were
    accepted. So record whole drafts: where verification was cut by the estimate itself, the samples
    of deep positions are a selection. A position without samples takes the temperature before it
    (1 at the start). Among equally good temperatures the one nearest to 1 is taken.

    Args:
        conditional: float [n, K] estimates in [0, 1], NaN where nothing was drafted.
        accepted: int [n], accepted tokens of each draft.
        verified: int [n], verified tokens of each draft; all drafted ones if None.
        grid: temperatures to try, all positive.
        num_bins: bins of the calibration error.

    Raises:
        ValueError: the shapes do not fit, counts exceed what was drafted, or a temperature is not positive.
    """
    conditional = conditional.double()
    if conditional.dim() != 2 or accepted.shape != conditional.shape[:1]:
        raise ValueError(
            f"conditional must be [n, K] and accepted [n], got {list(conditional.shape)} and"
            f" {list(accepted.shape)}"
        )
    drafted = conditional.isnan().logical_not().cumprod(dim=1).sum(dim=1)
    verified = drafted if verified is None else verified
    if bool((verified > drafted).any() or (accepted > verified).any() or (accepted < 0).any()):
        raise ValueError(
            "counts must be 0 <= accepted <= verified <= drafted in every row, got one that is not"
        )
    if not grid or min(grid) <= 0:
        raise ValueError(f"temperatures must be > 0, and at least one, got {list(grid)}")
    tried = torch.tensor(sorted(grid, key=_distance_to_one), dtype=torch.float64, device=conditional.device)
    temperatures: list[float] = []
    survival = torch.ones(conditional.shape[0], dtype=torch.float64, device=conditional.device)
    for k in range(1, conditional.shape[1] + 1):
        column = conditional[:, k - 1]
        sample = verified >= k
        temperature = temperatures[-1] if temperatures else 1.0
        if bool(sample.any()):
            candidates = survival[sample] * scaled(column[sample], tried[:, None])
            errors = expected_calibration_error(candidates, accepted[sample] >= k, num_bins)
            temperature = float(tried[errors.argmin()])
        temperatures.append(temperature)
        survival = survival * scaled(column, temperature)
    return tuple(temperatures)


def _distance_to_one(temperature: float) -> tuple[float, float]:
    """Order of preference: near 1 on a logarithmic scale, the softer one first."""
    return max(temperature, 1 / temperature), -temperature
