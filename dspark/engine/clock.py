"""Where the seconds of a step come from and where they went."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

PHASES: tuple[str, ...] = ("draft", "target", "policy", "verify", "rest")


class Clock(ABC):
    """Abstract; seconds since an arbitrary origin."""

    @abstractmethod
    def now_s(self) -> float:
        """Seconds, after all work handed to the device is done."""

    @abstractmethod
    def wait_until_s(self, time_s: float) -> None:
        """Return when :meth:`now_s` has reached ``time_s``, or at once if it has."""


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
        self.start_s = self._last_s = clock.now_s()
        self._split = dict.fromkeys(PHASES, 0.0)

    def lap(self, phase: str) -> None:
        """Charge the time since the last lap to ``phase``."""
        now = self._clock.now_s()
        self._split[phase] += now - self._last_s
        self._last_s = now

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start of the step to the last lap."""
        return self._last_s - self.start_s

    def split_s(self) -> Mapping[str, float]:
        """Seconds a phase."""
        return dict(self._split)
