"""A service under load: requests that come by themselves, and what their users and its owner see.

A discrete-event simulation: the steps are those of a replay, the events are its steps' ends, and time is
a cost model's. Throughput against the speed of one user is the frontier that a policy moves (the
production figures of DSpark, arXiv 2607.05147).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dspark.analysis.replay.run import Replayer

if TYPE_CHECKING:
    from dspark.analysis.replay.demand import Demand
    from dspark.analysis.replay.hindsight import Oracle
    from dspark.analysis.replay.record import Replay
    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cost.base import CostModel
    from dspark.policies.base import Policy

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What serves: how many rows at once, how much cache, how large a chunk of prompts.

    Raises:
        ValueError: a number below 1.
    """

    max_batch_size: int
    cache_tokens: int | None = None  # all rows together; None: enough
    prefill_chunk: int = 2048

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "cache_tokens", "prefill_chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyGoal:
    """A request that meets both counts for goodput; None: no bound."""

    max_ttft_s: float | None = None
    max_tpot_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """A policy at one load; every second is modelled."""

    arrivals_per_s: float  # that came
    modelled_tokens_per_s: float  # output tokens / seconds from the first arrival to the last token
    modelled_user_tokens_per_s: float  # mean over requests of 1 / TPOT: the speed that a user reads at
    mean_concurrency: float  # decode rows, weighted by the seconds of their steps
    mean_verified: float  # drafted tokens verified a row-step
    mean_emitted: float  # tokens a row-step
    modelled_ttft_s: tuple[float, ...]  # PERCENTILES, queueing included
    modelled_tpot_s: tuple[float, ...]
    modelled_goodput_tokens_per_s: float | None  # tokens of requests within the goal; None: no goal
    finished: int


def simulate(
    trace: AcceptanceTrace,
    policy: Policy | Oracle,
    demand: Demand,
    *,
    cost: CostModel,
    service: Service,
    goal: LatencyGoal | None = None,
) -> LoadPoint:
    """Serve all requests of the demand.

    Args:
        trace: what would be drafted and accepted.
        policy: of depth.
        demand: who comes, and when.
        cost: seconds of a step.
        service: what serves.
        goal: bounds for goodput.

    Raises:
        ValueError: the trace does not go with the policy, or a request is larger than the cache.
    """
    done = Replayer(
        trace,
        policy,
        batch_size=service.max_batch_size,
        cost=cost,
        prefill_chunk=service.prefill_chunk,
        demand=demand,
        cache_tokens=service.cache_tokens,
        keep_rows=False,
    ).run()
    return point(done, goal)


def point(done: Replay, goal: LatencyGoal | None = None) -> LoadPoint:
    """The figures of a replay with arrivals."""
    demand, steps, step_s = done.demand, done.steps, done.step_s
    tokens = done.trace.output_tokens[demand.requests]
    ttft = done.first_token_s - demand.arrival_s
    several = tokens > 1  # a request of one token has no time between tokens
    tpot = (done.last_token_s - done.first_token_s)[several] / (tokens[several] - 1)
    span_s = float(done.last_token_s.max() - demand.arrival_s[0])
    rows = float(steps["decode_rows"].sum())
    gaps_s = float(demand.arrival_s[-1] - demand.arrival_s[0])
    return LoadPoint(
        arrivals_per_s=(demand.num_requests - 1) / gaps_s if gaps_s > 0 else float("inf"),
        modelled_tokens_per_s=float(tokens.sum()) / span_s,
        modelled_user_tokens_per_s=float((1 / tpot).mean()) if len(tpot) else float("nan"),
        mean_concurrency=float((steps["decode_rows"] * step_s).sum() / step_s.sum()),
        mean_verified=float(steps["verified"].sum()) / rows if rows else 0.0,
        mean_emitted=float(steps["emitted"].sum()) / rows if rows else 0.0,
        modelled_ttft_s=_percentiles(ttft),
        modelled_tpot_s=_percentiles(tpot),
        modelled_goodput_tokens_per_s=_goodput(tokens, ttft, tpot, several, span_s, goal),
        finished=int(np.isfinite(done.last_token_s).sum()),
    )


def _percentiles(values: np.ndarray) -> tuple[float, ...]:
    if len(values) == 0:
        return (float("nan"),) * len(PERCENTILES)
    return tuple(float(value) for value in np.percentile(values, PERCENTILES))


def _goodput(
    tokens: np.ndarray,
    ttft: np.ndarray,
    tpot: np.ndarray,
    several: np.ndarray,
    span_s: float,
    goal: LatencyGoal | None,
) -> float | None:
    if goal is None:
        return None
    meets = np.ones(len(tokens), dtype=bool)
    if goal.max_ttft_s is not None:
        meets &= ttft <= goal.max_ttft_s
    if goal.max_tpot_s is not None:
        meets[several] &= tpot <= goal.max_tpot_s
    return float(tokens[meets].sum()) / span_s
