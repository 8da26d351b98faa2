"""Acceptance from the margin between the two best draft logits, learnt while serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.estimators.base import Estimator, observed, read_signal
from dspark.policies.estimators.logistic import fit_logistic
from dspark.types import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import StepContext, Verdict

INITIAL_SLOPE, INITIAL_INTERCEPT = 0.0, 1.5
"""Before the first fit: the same 0.82 for every margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginFit:
    """Coefficients and the observations they are fitted to."""

    theta: Tensor  # float64 [K, 2]: slope and intercept of each position
    margins: Tensor  # float32 [K, capacity], a ring of each position's last observations
    accepted: Tensor  # bool [K, capacity]
    num_seen: Tensor  # int [K], observations written so far
    num_steps: int  # since the last fit, of those that observed something
    num_fits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginLogistic(Estimator):
    """``c_k = sigmoid(w_k·m + b_k)``, m the top-2 logit margin, two coefficients a position.

    This is the estimator of vLLM's adaptive verification (https://github.com/vllm-project/vllm/pull/47808,
    ``acceptance_estimator.py``) with its defaults. Every ``refit_every`` steps each position that has
    ``min_observations`` is fitted anew, from its last ``capacity`` observations, to convergence (there:
    one Newton step from the observations since the last one). A position is observed only if all before
    it were accepted, for that is what conditional acceptance is about. A larger margin never means less
    acceptance: where the data say so, the slope is 0 and the intercept alone is fitted.

    While ``warming_up``, the first ``warmup_fits`` fits, policies should verify whole drafts, or the
    estimator would learn from what it had not trimmed itself.

    Args:
        refit_every: steps with an observation between two fits.
        warmup_fits: fits during which whole drafts should be verified.
        min_observations: of a position, for it to be fitted.
        capacity: observations of a position that are kept.
        l2: ridge penalty on both coefficients, as in ``fit_logistic``.
        max_margin: margins are cut off here; two tokens of which one is impossible have an infinite one.

    Raises:
        ValueError: a field is outside its range.
    """

    refit_every: int = 100
    warmup_fits: int = 3
    min_observations: int = 50
    capacity: int = 2048
    l2: float = 1e-3
    max_margin: float = 40.0

    def __post_init__(self) -> None:
        checks = (
            (self.refit_every >= 1, "refit_every", ">= 1 steps"),
            (self.warmup_fits >= 0, "warmup_fits", ">= 0"),
            (self.min_observations >= 1, "min_observations", ">= 1"),
            (
                self.capacity >= self.min_observations,
                "capacity",
                f">= min_observations={self.min_observations}",
            ),
            (self.l2 > 0, "l2", "> 0"),
            (self.max_margin > 0, "max_margin", "> 0"),
        )
        for holds, name, rule in checks:
            if not holds:
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)}")

    @property
    def needs(self) -> frozenset[Signal]:
        """The margin."""
        return frozenset({Signal.MARGIN})

    def init(self, num_slots: int, max_depth: int) -> MarginFit:
        """No observation, and the initial coefficients."""
        initial = torch.tensor([INITIAL_SLOPE, INITIAL_INTERCEPT], dtype=torch.float64)
        return MarginFit(
            theta=initial.repeat(max_depth, 1),
            margins=torch.zeros(max_depth, self.capacity),
            accepted=torch.zeros(max_depth, self.capacity, dtype=torch.bool),
            num_seen=torch.zeros(max_depth, dtype=torch.int64),
            num_steps=0,
            num_fits=0,
        )

    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: MarginFit
    ) -> Tensor:
        """Float64 [B, width], by each position's own curve; 0 where nothing was drafted."""
        margin = read_signal(signals, Signal.MARGIN, width, "margin_logistic").clamp(max=self.max_margin)
        theta = state.theta.to(margin.device)[:width]
        return torch.sigmoid(theta[:, 0] * margin + theta[:, 1]).nan_to_num(nan=0.0)

    def observe(self, ctx: StepContext, verdict: Verdict, state: MarginFit) -> MarginFit:
        """The state with the step's observations, and with new coefficients where a fit is due."""
        if verdict.draft is None or Signal.MARGIN not in verdict.draft.signals:
            return state
        margin = verdict.draft.signals[Signal.MARGIN].clamp(max=self.max_margin)
        seen = observed(verdict, margin.shape[1])
        if not bool(seen.reached.any()):  # the count of steps decides on the host when a fit is due
            return state
        grown = self._grown(state, margin, seen.reached, seen.accepted)
        return self._fitted(grown) if grown.num_steps >= self.refit_every else grown

    def warming_up(self, state: MarginFit) -> bool:
        """True before ``warmup_fits`` fits."""
        return state.num_fits < self.warmup_fits

    def _grown(self, state: MarginFit, margin: Tensor, reached: Tensor, accepted: Tensor) -> MarginFit:
        """The rings with the reached entries of ``margin`` and ``accepted``, [B, K'], written."""
        width = margin.shape[1]
        num_seen = state.num_seen.to(margin.device)
        num_new = torch.zeros_like(num_seen)
        num_new[:width] = reached.sum(dim=0)
        order = reached.cumsum(dim=0)  # from 1, within the position
        # a batch larger than the ring leaves its last rows; each place is written once
        is_kept = reached & (order > num_new[:width] - self.capacity)
        rows, positions = is_kept.nonzero(as_tuple=True)
        places = (num_seen[positions] + order[rows, positions] - 1) % self.capacity
        where = (positions, places)
        margins, labels = state.margins.to(margin.device), state.accepted.to(margin.device)
        return MarginFit(
            theta=state.theta,
            margins=margins.index_put(where, margin[rows, positions].to(margins.dtype)),
            accepted=labels.index_put(where, accepted[rows, positions]),
            num_seen=num_seen + num_new,
            num_steps=state.num_steps + 1,
            num_fits=state.num_fits,
        )

    def _fitted(self, state: MarginFit) -> MarginFit:
        """New coefficients for the positions with enough observations; a fit counts if there is one."""
        is_sample = torch.arange(self.capacity, device=state.num_seen.device) < state.num_seen[:, None]
        enough = state.num_seen >= self.min_observations
        theta = state.theta.to(enough.device)
        fitted = fit_logistic(state.margins, state.accepted, is_sample, theta, l2=self.l2)
        falls = fitted[:, :1] < 0
        if bool(falls.any()):
            # a feature of 0 leaves the slope to the penalty, which makes it 0
            level = fit_logistic(
                torch.zeros_like(state.margins), state.accepted, is_sample, theta, l2=self.l2
            )
            fitted = torch.where(falls, level, fitted)
        return MarginFit(
            theta=torch.where(enough[:, None], fitted, theta),
            margins=state.margins,
            accepted=state.accepted,
            num_seen=state.num_seen,
            num_steps=0,
            num_fits=state.num_fits + int(enough.any()),
        )
