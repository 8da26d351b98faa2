"""A cost model that is a table: measured seconds by the number of tokens in the pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from dspark.cost.base import CostModel, StepTime

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable(CostModel):
    """Look the target's seconds up under the tokens of the pass, and the drafter's under rows and depth.

    Between two listed sizes a pass costs what the next larger one does: engines with captured
    graphs pad to it, which makes the curve a staircase. With ``interpolate`` it is a straight line.
    Past the last size the line through the last two goes on; below the first, the first holds.

    Cached tokens are not looked at: a table belongs to the context length it was measured at.

    Args:
        tokens: listed sizes of the pass, ascending; two or more.
        target_s: seconds of a pass of each size; never shorter for a larger pass.
        steps_per_s: the same as steps per second, the SPS of DSpark's Algorithm 1 (arXiv 2607.05147).
            Exactly one of the two is set.
        interpolate: straight lines instead of steps, in both tables.
        draft_rows: listed numbers of rows. Of rows and depths, one entry alone stands for all sizes.
        draft_depths: listed depths, from 1; depth 0 takes no time.
        draft_s: a list a number of rows, of seconds to draft to each depth. All three are set, or none.
        overhead_s: of every step.

    Raises:
        ValueError: the lists do not fit together, do not ascend, or hold what is no time.
    """

    tokens: list[int]
    target_s: list[float] | None = None
    steps_per_s: list[float] | None = None
    interpolate: bool = False
    draft_rows: list[int] | None = None
    draft_depths: list[int] | None = None
    draft_s: list[list[float]] | None = None
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.target_s is None) == (self.steps_per_s is None):
            got = "none" if self.target_s is None else "both"
            raise ValueError(f"a step table needs exactly one of target_s and steps_per_s, got {got}")
        _check_sizes("tokens", self.tokens, at_least=2)
        rates = self.steps_per_s
        if rates is not None and not all(rate > 0 for rate in rates):
            raise ValueError(f"steps_per_s must be > 0, got {rates}")
        _check_seconds("target_s" if rates is None else "1 / steps_per_s", self._seconds(), self.tokens)
        if not 0 <= self.overhead_s < math.inf:
            raise ValueError(f"overhead_s must be >= 0 and finite, got {self.overhead_s!r}")
        self._check_draft()

    def step_time_s(
        self, *, decode_rows: Tensor, tokens: Tensor, context_tokens: Tensor, draft_tokens: Tensor
    ) -> StepTime:
        """Seconds of steps with these sizes, in float64; all arguments broadcast.

        Args:
            decode_rows: rows of the step; for the drafter's table.
            tokens: N, tokens in the target's pass.
            context_tokens: not looked at.
            draft_tokens: depth of the step; for the drafter's table.
        """
        rows, new, _, depth = torch.broadcast_tensors(decode_rows, tokens, context_tokens, draft_tokens)
        low, high, share = bracket(self.tokens, new, interpolate=self.interpolate)
        seconds = torch.tensor(self._seconds(), dtype=torch.float64, device=new.device)
        target_s = torch.lerp(seconds[low], seconds[high], share)
        return StepTime(
            draft_s=self._draft_time_s(rows, depth, zeros=torch.zeros_like(target_s)),
            target_s=target_s,
            overhead_s=torch.full_like(target_s, self.overhead_s),
        )

    def _seconds(self) -> list[float]:
        """Seconds of a pass of each listed size."""
        if self.target_s is not None:
            return self.target_s
        assert self.steps_per_s is not None, "a table without times"
        return [1 / rate for rate in self.steps_per_s]

    def _draft_time_s(self, rows: Tensor, depth: Tensor, *, zeros: Tensor) -> Tensor:
        """Float64 seconds of drafting ``depth`` tokens for each of ``rows``, in the shape of ``zeros``."""
        if self.draft_s is None:
            return zeros
        assert self.draft_rows is not None, "a draft table without rows"
        assert self.draft_depths is not None, "a draft table without depths"
        seconds = torch.tensor(self.draft_s, dtype=torch.float64, device=rows.device)
        low, high, share = bracket(self.draft_rows, rows, interpolate=self.interpolate)
        near, far, along = bracket(self.draft_depths, depth, interpolate=self.interpolate)
        fewer = torch.lerp(seconds[low, near], seconds[low, far], along)
        more = torch.lerp(seconds[high, near], seconds[high, far], along)
        return torch.where(depth > 0, torch.lerp(fewer, more, share), zeros)

    def _check_draft(self) -> None:
        """Raises where the drafter's table is incomplete or runs backwards."""
        given = (self.draft_rows, self.draft_depths, self.draft_s)
        if all(part is None for part in given):
            return
        if self.draft_rows is None or self.draft_depths is None or self.draft_s is None:
            raise ValueError("draft_rows, draft_depths and draft_s belong together: set all three, or none")
        _check_sizes("draft_rows", self.draft_rows, at_least=1)
        _check_sizes("draft_depths", self.draft_depths, at_least=1)
        if len(self.draft_s) != len(self.draft_rows):
            raise ValueError(
                f"draft_s needs one list for each of the {len(self.draft_rows)} draft_rows,"
                f" got {len(self.draft_s)}"
            )
        for num_rows, seconds in zip(self.draft_rows, self.draft_s, strict=True):
            _check_seconds(f"draft_s at {num_rows} rows", seconds, self.draft_depths)
        for place, depth in enumerate(self.draft_depths):
            column = [seconds[place] for seconds in self.draft_s]
            _check_seconds(f"draft_s at depth {depth}", column, self.draft_rows)


def bracket(listed: list[int], sizes: Tensor, *, interpolate: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Places below and above each of ``sizes``, and the share of the way between; past the end above 1."""
    marks = torch.tensor(listed, dtype=torch.float64, device=sizes.device)
    wanted = sizes.to(torch.float64).contiguous()
    last = len(listed) - 1
    if last == 0:
        place = torch.zeros_like(sizes, dtype=torch.int64)
        return place, place, torch.zeros_like(wanted)
    high = torch.searchsorted(marks, wanted).clamp(min=1, max=last)
    low = high - 1
    share = ((wanted - marks[low]) / (marks[high] - marks[low])).clamp(min=0)
    if not interpolate:
        share = torch.where((share > 0) & (share < 1), 1.0, share)
    return low, high, share


def _check_sizes(name: str, sizes: list[int], *, at_least: int) -> None:
    if len(sizes) < at_least:
        raise ValueError(f"{name} needs {at_least} or more sizes, got {sizes}")
    whole = all(isinstance(size, int) and size >= 1 for size in sizes)
    if not whole or any(larger <= size for size, larger in pairwise(sizes)):
        raise ValueError(f"{name} must be whole numbers that ascend from 1 or more, got {sizes}")


def _check_seconds(name: str, seconds: list[float], sizes: list[int]) -> None:
    """Raises unless there is a time for each size, and none is shorter than one of a smaller size."""
    if len(seconds) != len(sizes):
        raise ValueError(f"{name} needs a time for each of {len(sizes)} sizes, got {len(seconds)}")
    if not all(0 < second < math.inf for second in seconds):
        raise ValueError(f"{name} must hold seconds > 0, got {seconds}")
    for place, (shorter, longer) in enumerate(pairwise(seconds)):
        if longer < shorter:
            raise ValueError(
                f"{name} must not fall, got {shorter:g} s at {sizes[place]} and {longer:g} s at"
                f" {sizes[place + 1]}: measure again, or keep the larger of the two"
            )
