"""Depth by batch size: the schedules that serving engines are configured with."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Batch sizes from ``start`` up to the next segment's start, and their depth."""

    start: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTable(Policy):
    """Look the depth up under the number of decode rows; one depth for all rows of a step.

    Class A. Exactly one of three syntaxes is set:

    * ``ranges``: vLLM's ``num_speculative_tokens_per_batch_size``
      (https://docs.vllm.ai/en/v0.25.0/features/speculative_decoding/dynamic_speculative_decoding/),
      a list of ``[low, high, depth]`` with both ends included, ascending, the first at 1. Sizes in
      a gap have the depth of the range before it, sizes past the end that of the last range.
      ``depth``, if given, is the largest depth allowed (vLLM's ``num_speculative_tokens``).
    * ``draft_len_schedule``: TensorRT-LLM's ``{4: 4, 8: 2, 32: 1}``
      (https://github.com/NVIDIA/TensorRT-LLM/pull/10860), keys are the largest batch size of each
      depth; past the last key nothing is drafted. ``depth``, if given, is its ``max_draft_len``,
      which the smallest key must have and no other may exceed.
    * ``disable_by_batch_size``: vLLM's former switch
      (https://github.com/vllm-project/vllm/pull/5000), ``depth`` below this size and 0 from it on;
      unlike there, speculation comes back when the batch shrinks.

    Unlike in these engines, rows that prefill do not count, so that admitting a request does not
    move the others' depth by itself.

    Hysteresis: the first step looks its depth up. Afterwards the present range ``low..high``
    (adjoining ranges of one depth are one range) is kept while the batch size is in
    ``low - hysteresis .. high + hysteresis``, and looked up anew beyond. So 0 is a plain lookup,
    and a batch that swings by at most ``2 * hysteresis`` around an edge crosses it at most once.

    Raises:
        ValueError: none or several syntaxes are set, or the one set breaks a rule above.
    """

    ranges: list[list[int]] | None = None
    draft_len_schedule: dict[int, int] | None = None
    disable_by_batch_size: int | None = None
    depth: int | None = None
    hysteresis: int = 0

    def __post_init__(self) -> None:
        if self.depth is not None:
            require_depth(self.depth)
        if self.hysteresis < 0:
            raise ValueError(f"hysteresis must be >= 0 rows, got {self.hysteresis}")
        set_ones = [name for name in _SYNTAXES if getattr(self, name) is not None]
        if len(set_ones) != 1:
            got = " and ".join(set_ones) or "none"
            raise ValueError(f"a batch table needs exactly one of {', '.join(_SYNTAXES)}, got {got}")
        self.segments()

    def segments(self) -> tuple[Segment, ...]:
        """The table in its common form: ascending, the first at 1, neighbours of unlike depth."""
        if self.ranges is not None:
            found = _from_ranges(self.ranges, self.depth)
        elif self.draft_len_schedule is not None:
            found = _from_schedule(self.draft_len_schedule, self.depth)
        else:
            found = _from_switch(self.disable_by_batch_size, self.depth)
        merged: list[Segment] = []
        for segment in found:
            if not merged or merged[-1].depth != segment.depth:
                merged.append(segment)
        return tuple(merged)

    def depth_at(self, batch_size: int) -> int:
        """Depth that a plain lookup gives to ``batch_size`` >= 1 decode rows."""
        segments = self.segments()
        return segments[_lookup(segments, batch_size)].depth

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """The largest depth in the table."""
        return max(segment.depth for segment in self.segments())

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], the present range's depth everywhere."""
        segments = self.segments()
        return torch.full_like(ctx.slots, segments[self._present(segments, ctx.num_rows, state)].depth)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """Index of the range the step was in; None, as at the start, until there are decode rows."""
        return self._present(self.segments(), ctx.num_rows, state) if ctx.num_rows else state

    def _present(self, segments: tuple[Segment, ...], batch_size: int, state: int | None) -> int:
        """Index of the segment that holds now, ``state`` being the last step's."""
        if state is not None:
            low = segments[state].start
            end = segments[state + 1].start if state + 1 < len(segments) else math.inf
            if low - self.hysteresis <= batch_size < end + self.hysteresis:
                return state
        return _lookup(segments, batch_size)


_SYNTAXES = ("ranges", "draft_len_schedule", "disable_by_batch_size")


def _lookup(segments: tuple[Segment, ...], batch_size: int) -> int:
    """Index of the segment that covers ``batch_size``."""
    return bisect_right(segments, batch_size, key=lambda segment: segment.start) - 1


def _from_ranges(ranges: list[list[int]], depth: int | None) -> list[Segment]:
    """Segments of inclusive ``[low, high, depth]`` ranges; a gap belongs to the range before it."""
    if not ranges:
        raise ValueError("ranges must not be empty: give at least [1, 1, depth]")
    found: list[Segment] = []
    last = 0
    for entry in ranges:
        shown = list(entry)
        if len(shown) != 3 or not all(isinstance(number, int) for number in shown):
            raise ValueError(f"ranges must hold whole numbers [low, high, depth], got {shown}")
        low, high, range_depth = shown
        require_depth(range_depth, f"the depth of range {shown}")
        if low < 1 or low > high:
            raise ValueError(f"range {shown} must have 1 <= low <= high")
        if not found and low != 1:
            raise ValueError(
                f"ranges must start at batch size 1, got {shown} first: add [1, {low - 1}, depth]"
            )
        if low <= last:
            raise ValueError(f"ranges must ascend and not overlap, but {shown} follows a range up to {last}")
        if depth is not None and range_depth > depth:
            raise ValueError(f"range {shown} is deeper than depth={depth}: raise depth or leave it out")
        found.append(Segment(start=low, depth=range_depth))
        last = high
    return found


def _from_schedule(schedule: dict[int, int], depth: int | None) -> list[Segment]:
    """Segments of ``{largest batch size: depth}``, with 0 past the last key."""
    if not schedule:
        raise ValueError("draft_len_schedule must not be empty: give at least {batch_size: depth}")
    found: list[Segment] = []
    last = 0
    for high, key_depth in sorted(schedule.items()):
        require_depth(key_depth, f"the depth of draft_len_schedule[{high}]")
        if high < 1:
            raise ValueError(f"the keys of draft_len_schedule are batch sizes >= 1, got {high}")
        if depth is not None and (key_depth > depth or (not found and key_depth != depth)):
            raise ValueError(
                f"draft_len_schedule[{high}]={key_depth} contradicts depth={depth}, which the smallest batch"
                " size must have and none may exceed: change one, or leave depth out"
            )
        found.append(Segment(start=last + 1, depth=key_depth))
        last = high
    return [*found, Segment(start=last + 1, depth=0)]


def _from_switch(batch_size: int | None, depth: int | None) -> list[Segment]:
    """Segments of "``depth`` below ``batch_size``, off from it on"."""
    if depth is None:
        raise ValueError("disable_by_batch_size needs depth, the depth of smaller batches: set it")
    if batch_size is None or batch_size < 2:
        raise ValueError(f"disable_by_batch_size must be >= 2, got {batch_size}: depth=0 switches all off")
    return [Segment(start=1, depth=depth), Segment(start=batch_size, depth=0)]
