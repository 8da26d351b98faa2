"""Where the seconds of a step come from and where they went.

Here is the wall; ``clock_modelled`` has the seconds of another machine.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

PHASES: tuple[str, ...] = ("draft", "target", "policy", "verify", "rest")
NOTHING_CHARGED: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizes:
    """How much a step with a pass does; what a cost model is asked about."""

    num_decode_rows: int
    num_pass_tokens: int  # N, prompt chunks included
    context_tokens: int  # cached tokens that the pass attends to, over all rows
    draft_lengths: Tensor | None  # [B] tokens drafted; None if nothing was

    @property
    def depth(self) -> int:
        """Tokens drafted one after another: those of the longest draft."""
        return 0 if self.draft_lengths is None else int(self.draft_lengths.max())


class Clock(ABC):
    """Abstract; seconds since an arbitrary origin."""

    is_modelled: ClassVar[bool] = False
    """True where the seconds are a cost model's, and none of this machine's."""

    @abstractmethod
    def now_s(self) -> float:
        """Seconds, after all work handed to the device is done."""

    @abstractmethod
    def wait_until_s(self, time_s: float) -> None:
        """Return when :meth:`now_s` has reached ``time_s``, or at once if it has."""

    def charge(self, sizes: StepSizes) -> Mapping[str, float]:
        """Seconds by phase that the clock moves on for a step; none where time passes by itself."""
        return NOTHING_CHARGED


class WallClock(Clock):
    """The wall, read after the device has finished (which only matters on CUDA)."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"

    def now_s(self) -> float:
        """Seconds of ``time.perf_counter``."""
        if self._is_cuda:
            torch.cuda.synchronize()  # otherwise a phase would be charged to the next one
        return time.perf_counter()

    def wait_until_s(self, time_s: float) -> None:
        """Sleep until then."""
        time.sleep(max(0.0, time_s - self.now_s()))


class StepTimer:
    """Splits one step's seconds into phases; what no phase claims is ``rest``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = clock.now_s()
        self._split = dict.fromkeys(PHASES, 0.0)

    def lap(self, phase: str) -> None:
        """Charge the time since the last lap to ``phase``."""
        now = self._clock.now_s()
        self._split[phase] += now - self._last_s
        self._last_s = now

    def charge(self, sizes: StepSizes) -> None:
        """Tell the clock what the step does, and split what it charges for that; nothing on the wall."""
        for phase, seconds in self._clock.charge(sizes).items():
            self._split[phase] += seconds
            self._last_s += seconds  # in the order in which the clock moved, so that no lap sees a rest

    @property
    def is_modelled(self) -> bool:
        """True where the seconds are a cost model's."""
        return self._clock.is_modelled

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start of the step to the last lap: the sum of the phases."""
        return math.fsum(self._split.values())

    def split_s(self) -> Mapping[str, float]:
        """Seconds a phase."""
        return dict(self._split)
