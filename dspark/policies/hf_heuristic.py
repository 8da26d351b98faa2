"""The schedules of transformers' assisted generation, a row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.row_state import read_rows, write_rows
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict

SCHEDULES = ("heuristic", "heuristic_transient", "constant")

RISE = 2
"""Tokens deeper after a draft that was accepted whole."""

FALL = 1
"""Tokens less after any other draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HfHeuristic(Policy):
    """Two tokens deeper after a draft accepted whole, one less, but at least 1, after any other.

    Class A: a row's depth follows from its earlier steps. The rule is transformers'
    ``num_assistant_tokens_schedule`` (``generation/candidate_generator.py``), which knows one
    request at a time; here every row has a depth of its own:

    * ``heuristic``: a request goes on from the depth that the former one in its slot reached, as
      transformers keeps it from one ``generate`` to the next.
    * ``heuristic_transient``: a request starts at ``start``.
    * ``constant``: ``start``, always.

    A row in which nothing was verified keeps its depth: nothing was learned. transformers has no
    largest depth; ``depth`` sizes buffers here. Its older releases start at 5 with ``heuristic``,
    the defaults here; newer ones have ``constant``, 20 and a confidence threshold beside it. The
    depth is never 0.

    Args:
        schedule: one of the three.
        start: depth of the first draft (``num_assistant_tokens``).
        depth: the largest depth.

    Raises:
        ValueError: no such schedule, or not 1 <= start <= depth.
    """

    schedule: str = "heuristic"
    start: int = 5
    depth: int = 20

    def __post_init__(self) -> None:
        require_depth(self.start, "start")
        require_depth(self.depth)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        if not 1 <= self.start <= self.depth:
            raise ValueError(f"start must be in [1, depth={self.depth}], got {self.start}")

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """``depth``; ``start`` if it stays constant."""
        return self.start if self.schedule == "constant" else self.depth

    def init(self, num_slots: int) -> State:
        """Int [num_slots], ``start`` for every slot."""
        return torch.full((num_slots,), self.start)

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], each row's present depth."""
        return read_rows(state, ctx, self.start if self.schedule == "heuristic_transient" else None)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The depths after the step."""
        if self.schedule == "constant":
            return state
        before = self.plan(ctx, state)
        whole = verdict.accepted == verdict.verify_lengths
        after = torch.where(whole, before + RISE, before - FALL).clamp(1, self.depth)
        return write_rows(state, ctx, torch.where(verdict.verify_lengths > 0, after, before))
