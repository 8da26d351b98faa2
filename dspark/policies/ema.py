"""Depth tiers that follow the average accepted length, a set of tiers for each batch size."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.batch_buckets import bucket_of, require_starts
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


def _published_tiers() -> dict[int, list[int]]:
    return {1: [1, 3, 5, 7], 8: [0, 1, 3], 32: [0, 1], 64: [0]}


@dataclass(frozen=True, slots=True, kw_only=True)
class TierState:
    """Where one batch-size slot stands."""

    index: int  # of its present tier
    average: float  # accepted tokens a draft
    num_steps: int  # steps this slot has seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Ema(Policy):
    """The tier one step beyond the average accepted length; SGLang's adaptive speculation.

    Class A: tiers move on earlier steps. Source: SGLang's ``adaptive_spec_params.py``
    (https://github.com/sgl-project/sglang/pull/22246), whose defaults these are but for ``start``.

    A batch of B rows belongs to the slot with the largest key of ``tiers`` that is <= B. Every slot
    has tiers of its own and a state of its own. After a step with a depth > 0 its average moves by
    ``weight`` towards the batch's mean accepted length. After ``warmup_steps`` steps, every
    ``update_interval`` steps:

    * it falls while the average <= the next lower tier - 0.5 + ``down_hysteresis`` (a next lower
      tier of 0 counts as 1 here, so that it can be reached);
    * if it did not fall, it rises while the average > the present tier - 0.5 + ``up_hysteresis``.

    Way back from 0: the update after a stay at 0 always tries the next tier. A slot whose only tier
    is 0 stays there; a smaller batch leaves it.

    Unlike in SGLang, only decode rows count towards B, and only rows with a verified draft towards
    the mean.

    Args:
        tiers: ascending depths for each smallest batch size, the first at 1.
        start: a slot's first depth; where it is none of the slot's tiers, the middle one.
        weight: of the last step in the average, in (0, 1].
        warmup_steps: of a slot, before its tier moves.
        update_interval: steps between its moves.
        down_hysteresis: added to the thresholds below, by slot; slots left out have 0.
        up_hysteresis: added to the thresholds above, in every slot.

    Raises:
        ValueError: a field is outside its range.
    """

    tiers: dict[int, list[int]] = field(default_factory=_published_tiers)
    start: int = 3
    weight: float = 0.2
    warmup_steps: int = 10
    update_interval: int = 5
    down_hysteresis: dict[int, float] = field(default_factory=lambda: {1: -0.25})
    up_hysteresis: float = 0.0

    def __post_init__(self) -> None:
        require_depth(self.start, "start")
        require_starts(sorted(self.tiers), "the batch sizes of tiers")
        for size, depths in self.tiers.items():
            _require_tiers(depths, size)
        unknown = sorted(set(self.down_hysteresis) - set(self.tiers))
        if unknown:
            raise ValueError(f"down_hysteresis must name batch sizes of tiers, got {unknown[0]}")
        if not 0 < self.weight <= 1:
            raise ValueError(f"weight must be in (0, 1], got {self.weight}")
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps must be >= 0, got {self.warmup_steps}")
        if self.update_interval < 1:
            raise ValueError(f"update_interval must be >= 1 step, got {self.update_interval}")

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """The deepest tier."""
        return max(max(depths) for depths in self.tiers.values())

    def init(self, num_slots: int) -> State:
        """A tuple of ``TierState``, one a key of ``tiers`` in ascending order."""
        return tuple(self._initial(self.tiers[size]) for size in sorted(self.tiers))

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], the present tier of the batch's slot everywhere."""
        slot, depths = self._slot(ctx.num_rows)
        return torch.full_like(ctx.slots, depths[state[slot].index])

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The states after the step; only the slot of the step's batch changes."""
        if ctx.num_rows == 0:
            return state
        slot, depths = self._slot(ctx.num_rows)
        now = self._averaged(state[slot], depths, verdict)
        num_updates, rest = divmod(now.num_steps - self.warmup_steps, self.update_interval)
        if num_updates >= 1 and rest == 0:
            now = self._moved(now, depths, self.down_hysteresis.get(sorted(self.tiers)[slot], 0.0))
        return (*state[:slot], now, *state[slot + 1 :])

    def _slot(self, num_rows: int) -> tuple[int, list[int]]:
        """Index of the slot and its tiers."""
        sizes = sorted(self.tiers)
        slot = bucket_of(sizes, num_rows)
        return slot, self.tiers[sizes[slot]]

    def _initial(self, depths: list[int]) -> TierState:
        """A slot before its first step: as if all but one token of each draft had been accepted."""
        index = depths.index(self.start) if self.start in depths else len(depths) // 2
        return TierState(index=index, average=depths[index] - 1.0, num_steps=0)

    def _averaged(self, slot: TierState, depths: list[int], verdict: Verdict) -> TierState:
        """The slot with the step counted, and with its drafts in the average if there were any."""
        average = slot.average
        if depths[slot.index] > 0:
            # two sums of a step that is over: the engine has waited for the same tensors to commit it
            sums = torch.stack([verdict.accepted.sum(), (verdict.verify_lengths > 0).sum()])
            accepted, num_drafts = sums.tolist()
            if num_drafts:
                average += self.weight * (accepted / num_drafts - average)
        return replace(slot, average=average, num_steps=slot.num_steps + 1)

    def _moved(self, slot: TierState, depths: list[int], down_hysteresis: float) -> TierState:
        """The slot at the tier that its average asks for."""
        index, top = slot.index, len(depths) - 1
        if depths[index] == 0:
            index = min(index + 1, top)
            # a slot that began at 0 has no history: it tries its first tier without prejudice
            average = depths[index] - 1.0 if slot.average < 0 else slot.average
            return replace(slot, index=index, average=average)
        while index > 0 and slot.average <= max(depths[index - 1], 1) - 0.5 + down_hysteresis:
            index -= 1
        if index == slot.index:
            while index < top and slot.average > depths[index] - 0.5 + self.up_hysteresis:
                index += 1
        return replace(slot, index=index)


def _require_tiers(depths: list[int], size: int) -> None:
    """Raises unless ``depths`` are ascending depths."""
    name = f"tiers[{size}]"
    if not depths:
        raise ValueError(f"{name} must hold a depth at least, got none")
    for depth in depths:
        require_depth(depth, f"each depth of {name}")
    if sorted(set(depths)) != list(depths):
        raise ValueError(f"{name} must be ascending depths, got {list(depths)}")
