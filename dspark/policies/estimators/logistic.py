"""Ridge-penalised logistic regression on one feature, for many small data sets at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import softplus

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

MAX_ITERATIONS = 50
"""Newton's method needs under ten from anywhere near; the rest is for separable data."""


def fit_logistic(
    feature: Tensor, label: Tensor, is_sample: Tensor, start: Tensor, *, l2: float, tolerance: float = 1e-9
) -> Tensor:
    """Float64 [K, 2]: slope and intercept that maximise each data set's penalised likelihood.

    Minimises ``Σ log(1 + exp(−s·(w·x + b))) + l2/2·(w² + b²)`` with s = ±1 by Newton's method (IRLS),
    each step halved until it does not raise the objective. The penalty covers the intercept, which keeps
    it finite where all labels agree.

    Args:
        feature: float [K, n].
        label: bool [K, n].
        is_sample: bool [K, n], which entries count.
        start: float [K, 2], where to begin.
        l2: strength of the penalty, > 0.
        tolerance: largest change of a coefficient at which the search ends.
    """
    x = torch.where(is_sample, feature.double(), 0.0)  # what does not count may be NaN
    weight = is_sample.double()
    sign = torch.where(label, 1.0, -1.0).double()

    def objective(theta: Tensor) -> Tensor:
        z = theta[:, :1] * x + theta[:, 1:]
        return (weight * softplus(-sign * z)).sum(dim=1) + l2 / 2 * theta.square().sum(dim=1)

    theta = start.double()
    value = objective(theta)
    for _ in range(MAX_ITERATIONS):
        p = torch.sigmoid(theta[:, :1] * x + theta[:, 1:])
        residual = weight * (p - label.double())
        gradient = torch.stack([(residual * x).sum(dim=1), residual.sum(dim=1)], dim=1) + l2 * theta
        curvature = weight * p * (1 - p)
        xx, x1, one = ((curvature * f).sum(dim=1) for f in (x * x, x, torch.ones_like(x)))
        xx, one = xx + l2, one + l2
        determinant = xx * one - x1 * x1  # at least l2², by Cauchy and Schwarz
        step_w = (one * gradient[:, 0] - x1 * gradient[:, 1]) / determinant
        step_b = (xx * gradient[:, 1] - x1 * gradient[:, 0]) / determinant
        step = torch.stack([step_w, step_b], dim=1)
        theta, value, change = _descend(objective, theta, value, step)
        if change <= tolerance:
            break
    return theta


def _descend(
    objective: Callable[[Tensor], Tensor], theta: Tensor, value: Tensor, step: Tensor
) -> tuple[Tensor, Tensor, float]:
    """Coefficients, objective and largest change after a step, halved where it would raise the objective."""
    scale = torch.ones_like(value)
    for _ in range(30):
        new = theta - scale[:, None] * step
        new_value = objective(new)
        worse = ~(new_value <= value * (1 + 1e-12))  # up to rounding; NaN is worse
        if not bool(worse.any()):
            break
        scale = torch.where(worse, scale / 2, scale)
    else:
        new = torch.where(worse[:, None], theta, new)
        new_value = torch.where(worse, value, new_value)
    return new, new_value, float((new - theta).abs().max())
