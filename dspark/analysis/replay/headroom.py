"""Headroom: how much of what hindsight would gain over the best fixed depth a policy gains.

At one batch size, with speeds in tokens/s of replays of the same requests,

    headroom captured = (policy - best fixed) / (oracle - best fixed),

0 for the best fixed depth and 1 for the oracle, which knows what will be accepted and prices every step
(:class:`~dspark.analysis.replay.hindsight.JointHindsight`). A policy can be below 0. It could be above 1 only
by luck over a whole run, since the oracle looks no further than its step.

How sure that is comes from a paired bootstrap. Every request has tokens and seconds under every policy; the
trace's requests are drawn with replacement, the same draws for all policies, and a drawn speed is the drawn
requests' tokens over their seconds. What makes some requests easy then cancels between policies. The best
fixed depth is chosen on the whole trace and stays chosen in the draws: the choice itself is not drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dspark.analysis.replay.record import Replay
    from dspark.cost.base import CostModel

LEAST_ROOM = 1e-3
"""An oracle that leads the best fixed depth by this share of its speed, or less, has found no room."""


def request_seconds(done: Replay, cost: CostModel) -> np.ndarray:
    """Float64 [R], each request's part of a replay's seconds; they add up to all of them.

    A step's decode rows pay in equal shares for what the step takes without prompts: rows wait for each
    other, and a row that takes many steps is what makes a request dear. What prompts add to the steps that
    carry them is paid by all requests in proportion to their prompt tokens, since it is theirs whatever
    the policy. Cached tokens of prompts that are read in several chunks count for the decode rows.

    Args:
        done: with its row-steps.
        cost: which the replay's seconds are of.
    """
    assert done.num_row_steps == int(done.steps["decode_rows"].sum()), "the row-steps were not kept"
    num_requests = done.trace.num_requests
    decode_s = _without_prompts(done, cost)
    of_row_s = decode_s / np.maximum(done.steps["decode_rows"], 1)
    decoding = np.bincount(done.rows["request"], weights=of_row_s[done.rows["step"]], minlength=num_requests)
    prompts = np.bincount(done.demand.requests, minlength=num_requests) * done.trace.prompt_tokens
    return decoding + (done.step_s - decode_s).sum() * prompts / prompts.sum()


def _without_prompts(done: Replay, cost: CostModel) -> np.ndarray:
    """Float64 [S]: what each step would take if it carried no prompt; 0 where nothing decodes."""
    steps = done.steps
    seconds = np.where(steps["decode_rows"] > 0, done.step_s, 0.0)
    mixed = (steps["decode_rows"] > 0) & (steps["prefill_tokens"] > 0)
    if not mixed.any():
        return seconds
    time = cost.step_time_s(
        decode_rows=torch.from_numpy(steps["decode_rows"][mixed]),
        tokens=torch.from_numpy((steps["pass_tokens"] - steps["prefill_tokens"])[mixed]),
        context_tokens=torch.from_numpy(steps["context_tokens"][mixed]),
        draft_tokens=torch.from_numpy(steps["depth"][mixed]),
    )
    # a measured table may be dearer for fewer tokens: nobody is paid for bringing a prompt
    seconds[mixed] = np.minimum(seconds[mixed], time.total_s.double().numpy())
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number, and the interval that holds it in the wanted share of the draws."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSpeeds:
    """Tokens/s of policies on the same requests, and in S draws of these that all policies share."""

    whole: Mapping[str, float]
    drawn: Mapping[str, np.ndarray]  # float64 [S]
    confidence: float

    def best_of(self, policies: Iterable[str]) -> str:
        """The fastest on the whole trace; of equals the first."""
        return max(policies, key=self.whole.__getitem__)

    def ratio(self, policy: str, to: str) -> Estimate:
        """One policy's speed over another's."""
        return self._estimate(self.whole[policy] / self.whole[to], self.drawn[policy] / self.drawn[to])

    def room(self, *, best_fixed: str, oracle: str) -> Estimate:
        """What the oracle gains, as a share of the best fixed depth's speed."""
        lead = self.ratio(oracle, best_fixed)
        return Estimate(value=lead.value - 1, low=lead.low - 1, high=lead.high - 1)

    def headroom(self, policy: str, *, best_fixed: str, oracle: str) -> Estimate | None:
        """The share of the room that the policy takes; None where there is none to speak of.

        That is where the lower end of the room is not above ``LEAST_ROOM``: a share of noise is noise.
        """
        room = self.room(best_fixed=best_fixed, oracle=oracle)
        if min(room.value, room.low) <= LEAST_ROOM:
            return None
        drawn = self.drawn[policy] / self.drawn[best_fixed] - 1
        # the few draws that are left without room must not turn the sign of a gain
        rooms = np.maximum(self.drawn[oracle] / self.drawn[best_fixed] - 1, LEAST_ROOM)
        return self._estimate((self.whole[policy] / self.whole[best_fixed] - 1) / room.value, drawn / rooms)

    def _estimate(self, value: float, drawn: np.ndarray) -> Estimate:
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(drawn, (tail, 1 - tail)).tolist()
        return Estimate(value=value, low=low, high=high)


def paired_speeds(
    tokens: np.ndarray,
    seconds: Mapping[str, np.ndarray],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> PairedSpeeds:
    """The speeds of policies, and how they vary together from draw to draw.

    Args:
        tokens: [R] output tokens of each request, the same under all policies.
        seconds: float64 [R] a policy, as :func:`request_seconds` gives them.
        num_resamples: S.
        confidence: share of the draws that an interval holds.
        seed: of the draws.
    """
    count = len(tokens)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=num_resamples)
    return PairedSpeeds(
        whole={name: float(tokens.sum() / each.sum()) for name, each in seconds.items()},
        drawn={name: (draws @ tokens) / (draws @ each) for name, each in seconds.items()},
        confidence=confidence,
    )
