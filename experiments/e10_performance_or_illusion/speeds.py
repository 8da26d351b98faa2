"""Speed-ups by rule and batch size, as the published simulator computes them: each request beside its copies.

Copies do the same in every step under a rule that does not look at the batch, and none of these does. So
one replay of the request gives the steps of every batch size: their rows, tokens and cached tokens are
those of one copy times the number of copies. Only the seconds are computed anew.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import torch

from dspark.analysis.replay.hindsight import Hindsight
from dspark.analysis.replay.illusion import read_illusion
from dspark.analysis.replay.run import replay
from dspark.cost.published import published_cost
from dspark.policies.fixed import Fixed
from experiments.e10_performance_or_illusion.published import NUM_REQUESTS, SEED, Rule, file_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark.analysis.replay.record import Replay
    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cost.base import CostModel

WHOLE_PROMPTS = 1 << 30
"""Prompt tokens that a pass may carry: all."""


class Speeds:
    """Speed-ups on the traces of one set of prompts; every rule is replayed once.

    Args:
        folder: of the traces.
        prompts: the set.
        num_requests: at most, of those that the simulator draws.
    """

    def __init__(self, folder: Path, prompts: str, num_requests: int) -> None:
        path = folder / file_of(prompts)
        self._traces = {drafters: read_illusion(path, drafters) for drafters in ("eagle", "combined")}
        total = self._traces["eagle"].num_requests
        drawn = random.Random(SEED).sample(range(total), k=min(NUM_REQUESTS, total))
        self._chosen = drawn[:num_requests]
        self._plain: dict[str, list[Replay]] = {}

    @property
    def num_requests(self) -> int:
        """How many requests are replayed."""
        return len(self._chosen)

    def accepted_length(self) -> float:
        """EAGLE-3's mean over all positions of all requests, the target's own token included."""
        return float(self._traces["eagle"].accepted.mean()) + 1

    def speedups(self, rule: Rule, batch_sizes: Sequence[int]) -> list[float]:
        """Mean tokens/s over mean tokens/s of plain decoding, for every batch size."""
        drafters = "combined" if rule == "combined oracle" else "eagle"
        trace = self._traces[drafters]
        # their combined drafter is charged like prompt lookup
        cost = published_cost("illusion-llama3.1-8b-h100-" + ("ngram" if drafters == "combined" else "eagle"))
        policy = (
            Fixed(depth=int(rule.removeprefix("fixed ")))
            if rule.startswith("fixed")
            else Hindsight(depth=trace.depth, always_drafts=True)
        )
        ours = self._replays(trace, policy, cost)
        if drafters not in self._plain:
            self._plain[drafters] = self._replays(trace, Fixed(depth=0), cost)
        return [
            float(np.mean([tokens_per_s(done, cost, size) for done in ours]))
            / float(np.mean([tokens_per_s(done, cost, size) for done in self._plain[drafters]]))
            for size in batch_sizes
        ]

    def _replays(self, trace: AcceptanceTrace, policy: Fixed | Hindsight, cost: CostModel) -> list[Replay]:
        return [
            replay(trace.of([request]), policy, batch_size=1, cost=cost, prefill_chunk=WHOLE_PROMPTS)
            for request in self._chosen
        ]


def tokens_per_s(alone: Replay, cost: CostModel, batch_size: int) -> float:
    """Output tokens a second of ``batch_size`` copies of a request, from a replay of one."""
    steps = alone.steps
    time = cost.step_time_s(
        decode_rows=torch.from_numpy(steps["decode_rows"] * batch_size),
        tokens=torch.from_numpy(steps["pass_tokens"] * batch_size),
        context_tokens=torch.from_numpy(steps["context_tokens"] * batch_size),
        draft_tokens=torch.from_numpy(steps["depth"]),
    )
    return batch_size * int(alone.trace.output_tokens.sum()) / float(time.total_s.sum())
