"""A cost model that is a profile: measured seconds by rows, tokens of the pass and cached tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from dspark.cost.base import CostModel, StepTime
from dspark.cost.step_table import bracket

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from dspark.cost.profile import DraftPoint, Profile


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfileCost(CostModel):
    """The target's seconds from a table of rows, contexts and tokens; the others' from rows and depth.

    Between measured sizes every axis is a straight line. Past the last size the line through the
    last two goes on; below the first, the first holds. A pass of no more tokens than the largest
    captured graph costs what the next captured size does, which is a staircase.

    Build with :meth:`of`, which makes the tables monotone and complete.

    Args:
        rows: listed numbers of rows [R].
        contexts: listed cached tokens a row [C].
        tokens: listed tokens of the pass [T].
        target_s: float64 seconds [R, C, T].
        captured_tokens: pass sizes with a captured graph, ascending; none: ().
        draft_rows: listed numbers of rows [D] of the other two tables; none: both are 0.
        depths: listed depths [K], from 0.
        draft_s: float64 seconds [D, K] to draft; 0 at depth 0.
        overhead_s: float64 seconds [D, K] of the rest of the step.
    """

    rows: list[int]
    contexts: list[int]
    tokens: list[int]
    target_s: Tensor
    captured_tokens: tuple[int, ...]
    draft_rows: list[int]
    depths: list[int]
    draft_s: Tensor
    overhead_s: Tensor

    @classmethod
    def of(cls, profile: Profile) -> ProfileCost:
        """The tables of a profile, from its medians.

        Noise must not make a larger step cheaper, or an arg-max would chase it. Along tokens and
        depths, the nearest monotone curve in least squares takes the place of the medians
        (isotonic regression); along contexts and rows, a running maximum. Sizes that were not
        measured because they cannot be (fewer tokens than rows) continue the curve of the next
        fewer rows; contexts that were left out continue the line of the last two of their rows.
        """
        axes = (
            sorted({point.rows for point in profile.passes}),
            sorted({point.context for point in profile.passes}),
            sorted({point.tokens for point in profile.passes}),
        )
        draft_rows = sorted({point.rows for point in profile.drafts})
        depths = sorted({0, *(point.depth for point in profile.drafts)})
        return cls(
            rows=axes[0],
            contexts=axes[1],
            tokens=axes[2],
            target_s=torch.from_numpy(_target_table(profile, *axes)),
            captured_tokens=profile.model.captured_tokens,
            draft_rows=draft_rows,
            depths=depths,
            draft_s=_step_table(profile, draft_rows, depths, lambda point: point.median_draft_s, at_zero=0.0),
            overhead_s=_step_table(profile, draft_rows, depths, lambda point: point.median_overhead_s),
        )

    def step_time_s(
        self, *, decode_rows: Tensor, tokens: Tensor, context_tokens: Tensor, draft_tokens: Tensor
    ) -> StepTime:
        """Seconds of steps with these sizes, in float64; all arguments broadcast.

        Args:
            decode_rows: rows of the step.
            tokens: N, tokens in the target's pass.
            context_tokens: cached tokens over all rows; their mean a row is looked up.
            draft_tokens: depth of the step.
        """
        shape = torch.broadcast_shapes(
            decode_rows.shape, tokens.shape, context_tokens.shape, draft_tokens.shape
        )
        curves = self._curves(*torch.broadcast_tensors(decode_rows, context_tokens))
        draft_s, overhead_s = self._of_step(*torch.broadcast_tensors(decode_rows, draft_tokens))
        return StepTime(
            draft_s=draft_s.expand(shape),
            target_s=self._along(curves, tokens).expand(shape),
            overhead_s=overhead_s.expand(shape),
        )

    def _curves(self, rows: Tensor, cached: Tensor) -> Tensor:
        """Seconds [..., T] of the listed tokens at these rows and cached tokens over all rows.

        Where rows or contexts go on past the last, the line does so for each number of tokens by
        itself; the running maximum keeps those that come too close from crossing.
        """
        table = self.target_s.to(rows.device)
        context = cached.to(torch.float64) / rows.clamp(min=1)  # a pass without decode rows reads no cache
        low, high, along_rows = bracket(self.rows, rows, interpolate=True)
        near, far, along_context = bracket(self.contexts, context, interpolate=True)
        along_rows, along_context = along_rows[..., None], along_context[..., None]
        fewer = torch.lerp(table[low, near], table[low, far], along_context)
        more = torch.lerp(table[high, near], table[high, far], along_context)
        return torch.lerp(fewer, more, along_rows).cummax(dim=-1).values

    def _along(self, curves: Tensor, tokens: Tensor) -> Tensor:
        """The curves [..., T] at these tokens; all but the last dimension broadcast."""
        low, high, share = bracket(self.tokens, self._padded(tokens), interpolate=True)
        shape = torch.broadcast_shapes(curves.shape[:-1], tokens.shape)
        curves = curves.expand(*shape, curves.shape[-1])
        at_low, at_high = (curves.gather(-1, place.expand(shape)[..., None])[..., 0] for place in (low, high))
        return torch.lerp(at_low, at_high, share.expand(shape))

    def _padded(self, new: Tensor) -> Tensor:
        """The tokens that are computed: those of the next captured graph, where there is one."""
        if not self.captured_tokens:
            return new
        captured = torch.tensor(self.captured_tokens, dtype=torch.float64, device=new.device)
        exact = new.to(torch.float64).contiguous()
        place = torch.searchsorted(captured, exact)
        return torch.where(place < captured.numel(), captured[place.clamp(max=captured.numel() - 1)], exact)

    def _of_step(self, rows: Tensor, depth: Tensor) -> tuple[Tensor, Tensor]:
        """Drafter's and other seconds."""
        if not self.draft_rows:
            nothing = torch.zeros(rows.shape, dtype=torch.float64, device=rows.device)
            return nothing, nothing
        low, high, share = bracket(self.draft_rows, rows, interpolate=True)
        near, far, along = bracket(self.depths, depth, interpolate=True)

        def of(table: Tensor) -> Tensor:
            table = table.to(rows.device)
            fewer = torch.lerp(table[low, near], table[low, far], along)
            return torch.lerp(fewer, torch.lerp(table[high, near], table[high, far], along), share)

        return of(self.draft_s), of(self.overhead_s)


def _target_table(profile: Profile, rows: list[int], contexts: list[int], tokens: list[int]) -> np.ndarray:
    """Float64 seconds [R, C, T], complete and monotone along each axis."""
    table = np.full((len(rows), len(contexts), len(tokens)), np.nan)
    for i, num_rows in enumerate(rows):
        measured = [context for num, context in profile.curves() if num == num_rows]
        for context in measured:
            j = contexts.index(context)
            sizes, seconds = profile.curve(num_rows, context)
            table[i, j] = _line(tokens, sizes, isotonic_regression(seconds).x)
        _extend(table[i], [contexts.index(context) for context in measured], contexts)
        if i > 0:
            first = tokens.index(min(profile.curve(num_rows, measured[0])[0]))
            below, at = table[i - 1, :, :first], table[i - 1, :, first]
            table[i, :, :first] = table[i, :, first, None] - (at[:, None] - below)
    return np.maximum.accumulate(np.maximum.accumulate(table, axis=1), axis=0)


def _extend(curves: np.ndarray, known: list[int], contexts: list[int]) -> None:
    """Fill the rows of ``curves`` [C, T] that were not measured, along the contexts."""
    at = [contexts[j] for j in known]
    for column in curves.T:
        column[:] = _line(contexts, at, column[known])


def _line(wanted: list[int], sizes: list[int], seconds: np.ndarray) -> np.ndarray:
    """Straight lines between the sizes and on past the last two; the first holds below it."""
    inside = np.interp(wanted, sizes, seconds)
    if len(sizes) > 1:
        slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
        beyond = seconds[-1] + slope * (np.asarray(wanted) - sizes[-1])
        return np.where(np.asarray(wanted) > sizes[-1], np.maximum(beyond, seconds[-1]), inside)
    return inside


def _step_table(
    profile: Profile,
    rows: list[int],
    depths: list[int],
    of: Callable[[DraftPoint], float],
    *,
    at_zero: float | None = None,
) -> Tensor:
    """Float64 seconds [D, K] of the steps, complete and monotone along both axes."""
    table = np.zeros((len(rows), len(depths)))
    for i, num_rows in enumerate(rows):
        points = sorted((p.depth, of(p)) for p in profile.drafts if p.rows == num_rows)
        if at_zero is not None and points[0][0] > 0:
            points.insert(0, (0, at_zero))
        seconds = isotonic_regression([second for _, second in points]).x
        table[i] = _line(depths, [depth for depth, _ in points], seconds)
    return torch.from_numpy(np.maximum.accumulate(table, axis=0))
