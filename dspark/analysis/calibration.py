"""How well an estimator's acceptance probabilities agree with what was accepted, position by position.

Two questions are asked of every position k:

* *conditional*: of the drafts accepted up to k - 1, how often was k accepted, and was c_k right?
* *survival*: of all drafts verified at k, how often were 1 ... k accepted, and was the product of
  c_1 ... c_k right? This is what schedulers add up, and what sequential temperature scaling (STS,
  arXiv 2607.05147) fits.

Temperatures are fitted on some requests and judged by others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, roc_auc_score

from dspark.analysis.predictions import (
    Outcomes,
    Predictions,
    conditional_outcomes,
    split_requests,
    survival_outcomes,
)
from dspark.policies.estimators.temperature_scaling import fit_temperatures, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good predictions are; None where there is nothing to measure."""

    mean_predicted: float | None
    ece: float | None
    brier: float | None
    roc_auc: float | None  # None also where all happened, or nothing did


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The same outcomes, predicted without and with temperatures."""

    num_samples: int
    num_accepted: int
    enough: bool  # there are as many samples as were asked for
    before: Score
    after: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What was found for one draft position."""

    position: int  # from 1
    temperature: float
    num_fit_reached: int  # drafts of the fit half that were accepted up to the position before
    fitted: bool  # False: they are too few, and the temperature is 1
    conditional: Comparison
    survival: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Temperatures, and what they do for requests that they were not fitted on."""

    num_bins: int
    min_samples: int
    fit_requests: tuple[str, ...]
    evaluation_requests: tuple[str, ...]
    positions: tuple[Position, ...]
    conditional: Comparison  # all positions together
    survival: Comparison
    before: Predictions  # for the requests judged by
    after: Predictions

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Of the positions 1 ... K."""
        return tuple(position.temperature for position in self.positions)


def calibrate(
    predictions: Predictions,
    requests: Collection[str],
    *,
    fit_fraction: float,
    num_bins: int,
    min_samples: int,
    seed: int,
) -> Calibration:
    """Temperatures fitted on one part of the requests, and scores of the other with and without them.

    Positions that fewer than ``min_samples`` drafts of the fit half reach keep temperature 1: what the
    last fitted position needs, carried on, would compound in the products of all deeper ones.

    Args:
        predictions: an estimator's answers and what became of the drafts.
        requests: ids of the requests that ran, with or without drafts.
        fit_fraction: share of the requests to fit on, in (0, 1).
        num_bins: bins of the calibration error, in fit and scores.
        min_samples: positions with fewer are marked.
        seed: of the split.

    Raises:
        ValueError: fewer than two requests, or an argument out of range.
    """
    fit_ids, evaluation_ids = split_requests(requests, fit_fraction=fit_fraction, seed=seed)
    fit, before = predictions.of(fit_ids), predictions.of(evaluation_ids)
    depths = range(1, predictions.depth + 1)
    reached = [len(conditional_outcomes(fit, k)) for k in depths]
    num_fitted = sum(num >= min_samples for num in reached)  # fewer drafts reach the deeper positions
    temperatures = _fit(fit, num_fitted, num_bins)
    after = before.answered(scaled(before.conditional, torch.tensor(temperatures, dtype=torch.float64)))

    def compared(outcomes: Callable[[Predictions, int], Outcomes], positions: Sequence[int]) -> Comparison:
        then, now = ([outcomes(half, k) for k in positions] for half in (before, after))
        return _compare(_together(then), _together(now), num_bins=num_bins, min_samples=min_samples)

    return Calibration(
        num_bins=num_bins,
        min_samples=min_samples,
        fit_requests=tuple(sorted(fit_ids)),
        evaluation_requests=tuple(sorted(evaluation_ids)),
        positions=tuple(
            Position(
                position=k,
                temperature=temperatures[k - 1],
                num_fit_reached=reached[k - 1],
                fitted=k <= num_fitted,
                conditional=compared(conditional_outcomes, [k]),
                survival=compared(survival_outcomes, [k]),
            )
            for k in depths
        ),
        conditional=compared(conditional_outcomes, depths),
        survival=compared(survival_outcomes, depths),
        before=before,
        after=after,
    )


def to_json(calibration: Calibration) -> dict[str, Any]:
    """The calibration as plain values, without the predictions behind it."""
    return {
        "num_bins": calibration.num_bins,
        "min_samples": calibration.min_samples,
        "fit_requests": list(calibration.fit_requests),
        "evaluation_requests": list(calibration.evaluation_requests),
        "temperatures": list(calibration.temperatures),
        "positions": [asdict(position) for position in calibration.positions],
        "conditional": asdict(calibration.conditional),
        "survival": asdict(calibration.survival),
    }


def reliability(outcomes: Outcomes, num_bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every bin that holds a sample: share that happened, mean predicted, number of samples."""
    predicted, happened = outcomes.predicted.numpy(), outcomes.happened.numpy()
    shares, means = calibration_curve(happened, predicted, n_bins=num_bins, strategy="uniform")
    edges = np.linspace(0, 1, num_bins + 1)
    counts = np.bincount(np.searchsorted(edges[1:-1], predicted))
    counts = counts[counts > 0]
    assert len(counts) == len(shares), "bins differ from scikit-learn's"
    return shares, means, counts


def ece(outcomes: Outcomes, num_bins: int) -> float | None:
    """The expected calibration error: Σ_b n_b/N · |mean predicted - share that happened|, in [0, 1].

    Bins are equally wide over [0, 1] (Guo et al., arXiv 1706.04599, eq. 3). None without samples.
    """
    if len(outcomes) == 0:
        return None
    shares, means, counts = reliability(outcomes, num_bins)
    return float((counts * abs(shares - means)).sum() / counts.sum())


def score(outcomes: Outcomes, num_bins: int) -> Score:
    """Mean prediction, ECE, Brier score and area under the ROC curve of the outcomes."""
    if len(outcomes) == 0:
        return Score(mean_predicted=None, ece=None, brier=None, roc_auc=None)
    predicted, happened = outcomes.predicted.numpy(), outcomes.happened.numpy()
    mixed = bool(happened.any()) and not bool(happened.all())
    return Score(
        mean_predicted=float(predicted.mean()),
        ece=ece(outcomes, num_bins),
        brier=float(brier_score_loss(happened, predicted, pos_label=True)),
        roc_auc=float(roc_auc_score(happened, predicted)) if mixed else None,
    )


def _fit(fit: Predictions, num_fitted: int, num_bins: int) -> tuple[float, ...]:
    """K temperatures, the first ``num_fitted`` of them fitted, the rest 1."""
    fitted: tuple[float, ...] = ()
    if num_fitted > 0:
        fitted = fit_temperatures(
            fit.conditional[:, :num_fitted],
            fit.accepted.clamp(max=num_fitted),
            fit.verify_lengths.clamp(max=num_fitted),
            num_bins=num_bins,
        )
    return fitted + (1.0,) * (fit.depth - num_fitted)


def _together(parts: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(
        predicted=torch.cat([part.predicted for part in parts]),
        happened=torch.cat([part.happened for part in parts]),
    )


def _compare(before: Outcomes, after: Outcomes, *, num_bins: int, min_samples: int) -> Comparison:
    return Comparison(
        num_samples=len(before),
        num_accepted=int(before.happened.sum()),
        enough=len(before) >= min_samples,
        before=score(before, num_bins),
        after=score(after, num_bins),
    )
