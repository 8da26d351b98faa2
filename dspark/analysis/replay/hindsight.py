"""Depths of one who knows what will be accepted: no policy, but what policies are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dspark.analysis.replay.trace import AcceptanceTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """Verifies exactly the tokens that will be accepted, a row at a time.

    It is the "oracle" of "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580). It does not
    look at what a token costs, nor at what a shorter draft would lead to, so a policy can do better.
    """

    depth: int  # at most
    always_drafts: bool = False  # True: pays for a draft also where nothing of it will be accepted

    def depths(
        self, trace: AcceptanceTrace, at: np.ndarray, usable: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens drafted and tokens verified, int64 [B] each.

        Args:
            trace: what will be accepted.
            at: int64 [B], the rows' places among the trace's positions.
            usable: int64 [B], the deepest drafts that the rows can use.
        """
        verified = np.minimum(np.minimum(trace.accepted[at], self.depth), usable)
        least = np.minimum(usable, 1) if self.always_drafts else 0
        return np.maximum(verified, least), verified
