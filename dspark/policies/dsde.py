"""Depth from how far, and how steadily, the drafter's law is from the target's."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.divergence_ratio import appended, variance_ratio
from dspark.policies.row_state import read_rows, write_rows
from dspark.types import LosslessClass, Signal

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict

LARGEST_DIVERGENCE = 1e4
"""In nats, where infinity is put: the drafted token was impossible for the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDivergences:
    """One entry a slot; the first four describe its calibration."""

    num_judged: Tensor  # int [num_slots], verified tokens while calibrating
    longest: Tensor  # int [num_slots], most of them accepted in a step
    total: Tensor  # float64 [num_slots], sum of their divergences
    largest: Tensor  # float64 [num_slots], maximum of their divergences
    window: Tensor  # float64 [num_slots, long_window], the last divergences; NaN in front
    last_mean: Tensor  # float64 [num_slots], mean divergence of the row's last draft
    depth: Tensor  # int [num_slots], while calibrating


@dataclass(frozen=True, slots=True, kw_only=True)
class Dsde(Policy):
    """DSDE (arXiv 2509.01083): shallower where the divergence from the target is large or unsteady.

    Class A: KL(q || p) of the *last* drafts is past when a depth is chosen. With μ the mean
    divergence of the row's last draft and WVIR its variance over the last ``short_window`` verified
    tokens relative to the last ``long_window``, both with weights decaying by ``decay`` a token,

        x = (exp(``sensitivity`` · μ) - 1) · WVIR,  SL = SL_min + (1 - x) · (SL_max - SL_min) for x <= 1,

    else SL_min, rounded up. SL_max = L · (1 + mean / max) from the row's first
    ``calibration_tokens`` verified tokens: the most accepted in a step, the mean and the maximum of
    their divergences. With ``cap`` no row goes deeper than the mean SL of the batch's calibrated
    rows, rounded up, so that one row does not make all others wait.

    Formulas and defaults are the paper's. Its code differs: half of mean / max in SL_max, weights
    0.9, μ over the temperature, minimum 6. While a row calibrates, its depth starts at ``start`` and
    doubles whenever a draft is accepted whole, which is the code's rule. Ours: the direction of the
    divergence (the paper's code has KL(p || q)), and a WVIR of 1 where nothing varies. For drafts
    that are point masses, and under verification that asks for no q (coupled, greedy), the divergence
    is ``-log p`` of the token. The depth is never 0.

    Args:
        depth: the largest depth.
        min_depth: SL_min, at least 1.
        start: depth of a row's first draft.
        calibration_tokens: verified tokens of a row before its divergences decide.
        short_window: tokens.
        long_window: tokens.
        decay: weight of a token relative to the next one, in (0, 1].
        sensitivity: of depth to divergence, > 0.
        cap: bound depths by the batch's mean.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 20
    min_depth: int = 2
    start: int = 4
    calibration_tokens: int = 30
    short_window: int = 10
    long_window: int = 30
    decay: float = 0.85
    sensitivity: float = 2.0
    cap: bool = True

    def __post_init__(self) -> None:
        for name in ("depth", "min_depth", "start"):
            require_depth(getattr(self, name), name)
        if not 1 <= self.min_depth <= self.start <= self.depth:
            raise ValueError(
                "depths must be 1 <= min_depth <= start <= depth, got "
                f"min_depth={self.min_depth}, start={self.start}, depth={self.depth}"
            )
        checks = (
            (self.calibration_tokens >= 1, "calibration_tokens", ">= 1"),
            (self.short_window >= 2, "short_window", ">= 2 tokens"),
            (self.long_window >= self.short_window, "long_window", f">= short_window={self.short_window}"),
            (0 < self.decay <= 1, "decay", "in (0, 1]"),
            (0 < self.sensitivity < float("inf"), "sensitivity", "> 0"),
        )
        for holds, name, rule in checks:
            if not holds:
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """``depth``."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The divergence of earlier steps."""
        return frozenset({Signal.DIVERGENCE})

    def init(self, num_slots: int) -> State:
        """Every slot as a new row finds it."""
        integers = torch.zeros(num_slots, dtype=torch.int64)
        numbers = torch.zeros(num_slots, dtype=torch.float64)
        return RowDivergences(
            num_judged=integers,
            longest=integers,
            total=numbers,
            largest=numbers,
            window=torch.full((num_slots, self.long_window), torch.nan, dtype=torch.float64),
            last_mean=numbers,
            depth=torch.full((num_slots,), self.start),
        )

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], each row's depth, with ``cap`` bounded by the batch's mean."""
        rows = self._rows(ctx, state)
        calibrated = rows.num_judged >= self.calibration_tokens
        depth = torch.where(calibrated, self._predicted(rows), rows.depth)
        if not self.cap:
            return depth
        # bounds calibrated rows only; a batch without any has no bound
        num_calibrated = calibrated.sum().clamp(min=1)
        mean = ((depth * calibrated).sum() + num_calibrated - 1) // num_calibrated  # rounded up
        return torch.where(calibrated, torch.minimum(depth, mean), depth)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The rows' entries after the step; rows in which nothing was verified keep theirs."""
        rows = self._rows(ctx, state)
        if verdict.divergence is not None:
            rows = self._learned(rows, verdict, verdict.divergence)
        stores = {item.name: getattr(state, item.name) for item in fields(RowDivergences)}
        written = {name: write_rows(store, ctx, getattr(rows, name)) for name, store in stores.items()}
        return RowDivergences(**written)

    def _rows(self, ctx: StepContext, state: RowDivergences) -> RowDivergences:
        """The entries of the step's rows, [B, ...]."""
        fresh = {"window": torch.nan, "depth": self.start}
        names = (item.name for item in fields(RowDivergences))
        return RowDivergences(
            **{name: read_rows(getattr(state, name), ctx, fresh.get(name, 0)) for name in names}
        )

    def _predicted(self, rows: RowDivergences) -> Tensor:
        """Int [B], SL of rows as if they were calibrated."""
        mean = rows.total / rows.num_judged.clamp(min=1)
        share = torch.where(rows.largest > 0, mean / rows.largest, 0.0)
        top = (rows.longest * (1 + share)).clamp(self.min_depth, self.depth)
        ratio = variance_ratio(rows.window, self.short_window, self.decay)
        x = torch.expm1(self.sensitivity * rows.last_mean) * ratio
        # an overflow times a ratio of 0 is NaN, which is not <= 1: unsteady too
        share_of_range = torch.where(x <= 1, 1 - x, 0.0)
        return (self.min_depth + share_of_range * (top - self.min_depth)).ceil().long()

    def _learned(self, rows: RowDivergences, verdict: Verdict, divergence: Tensor) -> RowDivergences:
        """The entries with what the step showed."""
        counts, accepted = verdict.verify_lengths, verdict.accepted
        judged = torch.arange(divergence.shape[1], device=counts.device) < counts[:, None]
        # below 0 there is rounding only
        values = divergence.double().clamp(min=0, max=LARGEST_DIVERGENCE).where(judged, 0.0)
        drafted, sums = counts > 0, values.sum(1)
        calibrating = drafted & (rows.num_judged < self.calibration_tokens)
        largest = values.amax(1) if values.shape[1] else rows.largest
        whole = calibrating & (accepted == counts) & (counts >= rows.depth)
        return RowDivergences(
            num_judged=rows.num_judged + counts * calibrating,
            longest=torch.where(calibrating, torch.maximum(rows.longest, accepted), rows.longest),
            total=rows.total + sums * calibrating,
            largest=torch.where(calibrating, torch.maximum(rows.largest, largest), rows.largest),
            window=appended(rows.window, values, counts),
            last_mean=torch.where(drafted, sums / counts.clamp(min=1), rows.last_mean),
            depth=torch.where(whole, 2 * rows.depth, rows.depth).clamp(max=self.depth),
        )
