"""Depths of those who know what will be accepted: no policies, but what policies are measured against.

Neither looks further than its step. What a shorter draft now would lead to later, nobody can tell without
trying all of it, so a policy can be lucky over a whole run; within a step none does better than
:class:`JointHindsight` (the tests hold every policy's steps against it).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from dspark.analysis.replay.trace import AcceptanceTrace

    Seconds = Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Seconds of the step by verified drafts over all rows and the longest draft; both broadcast."""


class Oracle(ABC):
    """Abstract; knows the trace."""

    @abstractmethod
    def depths(
        self, trace: AcceptanceTrace, at: np.ndarray, usable: np.ndarray, seconds: Seconds
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens drafted and tokens verified, int64 [B] each.

        Args:
            trace: what will be accepted.
            at: int64 [B], the rows' places among the trace's positions.
            usable: int64 [B], the deepest drafts that the rows can use.
            seconds: of the step.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight(Oracle):
    """Verifies exactly the tokens that will be accepted, a row at a time, whatever they cost.

    The "oracle" of "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580).
    """

    depth: int  # at most
    always_drafts: bool = False  # True: pays for a draft also where nothing of it will be accepted

    def depths(
        self, trace: AcceptanceTrace, at: np.ndarray, usable: np.ndarray, seconds: Seconds
    ) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`Oracle.depths`."""
        verified = np.minimum(np.minimum(trace.accepted[at], self.depth), usable)
        least = np.minimum(usable, 1) if self.always_drafts else 0
        return np.maximum(verified, least), verified


@dataclass(frozen=True, slots=True, kw_only=True)
class JointHindsight(Oracle):
    """The most tokens a second that a step of these rows can give.

    Of the tokens that will be accepted it verifies as many as pay under the cost model, with the longest
    draft as short as pays: for every cap on the depth and every number of tokens under it, (rows + tokens)
    over seconds is tried. Which rows' tokens are left out makes no difference to the step; the last ones
    of the longest drafts are.
    """

    depth: int  # at most

    def depths(
        self, trace: AcceptanceTrace, at: np.ndarray, usable: np.ndarray, seconds: Seconds
    ) -> tuple[np.ndarray, np.ndarray]:
        """See :meth:`Oracle.depths`."""
        right = np.minimum(np.minimum(trace.accepted[at], self.depth), usable)
        caps = np.arange(int(right.max(initial=0)) + 1)
        room = np.minimum(right, caps[:, None]).sum(1)  # [D + 1] tokens under each cap
        tokens = np.arange(int(room[-1]) + 1)
        gain = (len(at) + tokens) / seconds(tokens, caps[:, None])  # [D + 1, tokens]
        gain = np.where(tokens <= room[:, None], gain, -np.inf)
        gain[1:, 0] = -np.inf  # a draft without a token
        cap, count = np.unravel_index(int(gain.argmax()), gain.shape)
        chosen = _cut(np.minimum(right, int(cap)), int(count))
        return chosen, chosen


def _cut(depths: np.ndarray, total: int) -> np.ndarray:
    """The depths with their last tokens left out, of the longest first, until ``total`` are left."""
    kept = depths.copy()
    over = int(kept.sum()) - total
    while over > 0:
        longest = np.flatnonzero(kept == kept.max())[:over]
        kept[longest] -= 1
        over -= len(longest)
    return kept
