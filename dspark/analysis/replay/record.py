"""What a replay did, step by step and row by row, and the totals that metrics are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dspark.metrics.definitions import Totals

if TYPE_CHECKING:
    from dspark.analysis.replay.demand import Demand
    from dspark.analysis.replay.trace import AcceptanceTrace

ROW_FIELDS = (
    *("step", "slot", "request", "planned", "allowed", "drafted", "verified", "accepted"),
    *("emitted", "context"),
)
STEP_FIELDS = (
    *("decode_rows", "pass_tokens", "context_tokens", "depth", "emitted", "drafted", "verified", "accepted"),
    *("prefill_rows", "prefill_tokens"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """S steps with M row-steps; seconds are a cost model's, and belong under ``modelled_*`` names.

    Where row-steps were not kept, ``rows`` is empty and :meth:`totals` cannot be had.
    """

    trace: AcceptanceTrace
    demand: Demand
    first_token_s: np.ndarray  # float64 [Q], when each request's first token came, from the start
    last_token_s: np.ndarray  # float64 [Q]
    batch_size: int
    steps: dict[str, np.ndarray]  # STEP_FIELDS, int64 [S] each
    rows: dict[str, np.ndarray]  # ROW_FIELDS, int64 [M] each; slots ascend within a step
    draft_s: np.ndarray  # float64 [S]
    target_s: np.ndarray  # float64 [S]
    overhead_s: np.ndarray  # float64 [S]

    @property
    def step_s(self) -> np.ndarray:
        """Float64 [S]: seconds of each step."""
        return self.draft_s + self.target_s + self.overhead_s

    @property
    def num_row_steps(self) -> int:
        """M."""
        return len(self.rows["step"])

    def tokens_per_s(self) -> float:
        """Output tokens / seconds of all steps, prefill included."""
        return float(self.trace.output_tokens[self.demand.requests].sum() / self.step_s.sum())

    def decode_tokens_per_s(self) -> float | None:
        """Tokens emitted / seconds, over the steps without prefill; None if there is none."""
        plain = self.steps["prefill_rows"] == 0
        seconds = self.step_s[plain].sum()
        return float(self.steps["emitted"][plain].sum() / seconds) if seconds > 0 else None

    def totals(self) -> Totals:
        """The same sums as of a live run's steps."""
        assert self.num_row_steps == int(self.steps["decode_rows"].sum()), "the row-steps were not kept"
        steps, rows, plain = self.steps, self.rows, self.steps["prefill_rows"] == 0
        with_draft = rows["drafted"] > 0
        split = {"draft": self.draft_s, "target": self.target_s, "rest": self.overhead_s}
        return Totals(
            num_steps=len(self.step_s),
            num_target_passes=int((steps["pass_tokens"] > 0).sum()),
            num_pass_tokens=int(steps["pass_tokens"].sum()),
            num_prefill_tokens=int(steps["prefill_tokens"].sum()),
            num_context_tokens=int(steps["context_tokens"].sum()),
            wall_s=float(self.step_s.sum()),
            time_split_s={
                **{phase: float(seconds.sum()) for phase, seconds in split.items()},
                "policy": 0.0,
                "verify": 0.0,
            },
            decode_only_wall_s=float(self.step_s[plain].sum()),
            decode_only_emitted=int(steps["emitted"][plain].sum()),
            num_row_steps=self.num_row_steps,
            num_draft_row_steps=int(with_draft.sum()),
            emitted=int(rows["emitted"].sum()),
            emitted_with_draft=int(rows["emitted"][with_draft].sum()),
            planned=int(rows["planned"].sum()),
            allowed=int(rows["allowed"].sum()),
            drafted=int(rows["drafted"].sum()),
            verified=int(rows["verified"].sum()),
            accepted=int(np.minimum(rows["accepted"], rows["emitted"]).sum()),
            verified_at=_reached(rows["verified"]),
            eligible_at=_reached(np.minimum(rows["verified"], rows["accepted"] + 1)),
            accepted_at=_reached(rows["accepted"]),
        )


def _reached(counts: np.ndarray) -> tuple[int, ...]:
    """[k-1] = how many counts are k or more."""
    return tuple(int((counts >= k).sum()) for k in range(1, int(counts.max(initial=0)) + 1))
