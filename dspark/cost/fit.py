"""A linear cost model fitted to a profile, and how far it is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls

from dspark.cost.linear import LinearCost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark.cost.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class FitError:
    """How far a fit is from the medians it was fitted to."""

    num_points: int
    rmse_s: float
    max_relative: float  # of |fit - measured| / measured
    median_relative: float
    r2: float | None  # 1 - squared error / variance; None where the measured do not vary


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFit:
    """The model and its errors."""

    cost: LinearCost
    target: FitError
    draft: FitError | None  # None: nothing was drafted


def fit_linear(profile: Profile) -> LinearFit:
    """The non-negative least-squares fit of ``LinearCost`` to the medians of a profile.

    Target: ``fixed + kv * rows * context + token * tokens + row * rows``. Drafter, at depths above
    0: ``fixed + row * rows + depth * depth``. Overhead: the median over all steps, drafting or
    not. Coefficients are kept from going below 0 (``scipy.optimize.nnls``), so that a larger step
    never costs less and any context can be asked for. A term that the measured sizes cannot tell
    from the ones before it (one number of rows, say) is left at 0.
    """
    points = profile.passes
    target_terms = {
        "target_fixed_s": np.ones(len(points)),
        "target_token_s": np.array([p.tokens for p in points], float),
        "target_kv_s": np.array([p.rows * p.context for p in points], float),
        "target_row_s": np.array([p.rows for p in points], float),
    }
    coefficients, target = _fit(target_terms, np.array([p.median_s for p in points]))
    drafts = [p for p in profile.drafts if p.depth > 0]
    draft = None
    if drafts:
        draft_terms = {
            "draft_fixed_s": np.ones(len(drafts)),
            "draft_depth_s": np.array([p.depth for p in drafts], float),
            "draft_row_s": np.array([p.rows for p in drafts], float),
        }
        found, draft = _fit(draft_terms, np.array([p.median_draft_s for p in drafts]))
        coefficients |= found
    if profile.drafts:
        coefficients["overhead_s"] = float(np.median([p.median_overhead_s for p in profile.drafts]))
    return LinearFit(cost=LinearCost(**coefficients), target=target, draft=draft)


def _fit(terms: Mapping[str, np.ndarray], measured: np.ndarray) -> tuple[dict[str, float], FitError]:
    """Coefficients by name, and the error of their sum."""
    names: list[str] = []
    for name in terms:  # a term counts where it adds to the rank
        columns = np.stack([terms[other] for other in (*names, name)], axis=1)
        scale = np.abs(columns).max(axis=0)
        if scale[-1] > 0 and np.linalg.matrix_rank(columns / scale) == columns.shape[1]:
            names.append(name)
    columns = np.stack([terms[name] for name in names], axis=1)
    scale = columns.max(axis=0)  # columns of like size keep the problem well conditioned
    solved = nnls(columns / scale, measured)[0] / scale
    coefficients = {**dict.fromkeys(terms, 0.0), **dict(zip(names, map(float, solved), strict=True))}
    return coefficients, _error(columns @ solved, measured)


def _error(fitted: np.ndarray, measured: np.ndarray) -> FitError:
    residuals, spread = fitted - measured, measured - measured.mean()
    is_time = measured > 0  # a drafter that looks something up may take no measurable time
    relative = np.abs(residuals[is_time]) / measured[is_time]
    varies = float(spread @ spread) > 0
    return FitError(
        num_points=measured.size,
        rmse_s=float(np.sqrt(np.mean(residuals**2))),
        max_relative=float(relative.max(initial=0.0)),
        median_relative=float(np.median(relative)) if relative.size else 0.0,
        r2=1 - float(residuals @ residuals) / float(spread @ spread) if varies else None,
    )
