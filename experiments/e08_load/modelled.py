"""A service under a load that grows: an 8B target on a modelled GPU, drafts that know how sure they are."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark.analysis.load import LoadPoint, Service, simulate
from dspark.analysis.replay.demand import Demand
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.hardware import device_of
from dspark.cost.named_shapes import named_shape
from dspark.cost.roofline import Roofline
from dspark.metrics.trace import JsonlWriter, drop_torn_line, read_jsonl
from dspark.policies.fixed import Fixed
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.policies.stale_scheduler import StaleScheduler
from dspark.types import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from dspark.policies.base import Policy

DEPTH = 5
"""Drafts of a block, as in production."""
RATES_PER_S = (10.0, 30.0, 45.0, 60.0, 120.0, 240.0)
"""Arrivals; the machine is full somewhere in the middle."""
PLAIN, SHALLOW, DEEP, DYNAMIC, STALE = (
    *("fixed 0", "fixed 1", "fixed 5"),
    *("prefix_scheduler", "stale_scheduler"),
)
POLICIES: Mapping[str, Policy] = {
    PLAIN: Fixed(depth=0),
    SHALLOW: Fixed(depth=1),
    DEEP: Fixed(depth=DEPTH),
    DYNAMIC: PrefixScheduler(depth=DEPTH, estimator="confidence"),
    STALE: StaleScheduler(depth=DEPTH, estimator="confidence"),
}
SERVICE = Service(max_batch_size=512)
SEED = 0

Curves = dict[str, list[LoadPoint]]
"""By policy, a point a rate of arrivals."""


def acceptance_profile(num_requests: int = 120, output_tokens: int = 120) -> AcceptanceTrace:
    """Drafts of a block drafter whose confidence is right: some are sure of themselves, some are not.

    A draft has a sureness of its own, from Beta(4, 1), and its positions fall off from there a little. So
    the first position is right 8 times in 10 and a draft of 5 gives 3.8 tokens on average, between what the
    paper's table 1 has for chat and for math at 7.
    """
    generator = np.random.default_rng(SEED)
    count = num_requests * (output_tokens - 1)
    falling = np.array([1.0, 0.98, 0.96, 0.95, 0.94])
    confidence = np.clip(generator.beta(4, 1, size=(count, 1)) * falling, 0.02, 0.99)
    right = generator.random((count, DEPTH)) < confidence
    return AcceptanceTrace(
        depth=DEPTH,
        request_ids=tuple(map(str, range(num_requests))),
        prompt_tokens=np.full(num_requests, 500),
        output_tokens=np.full(num_requests, output_tokens),
        max_tokens=np.full(num_requests, 500 + output_tokens),
        drafted=np.full(count, DEPTH),
        accepted=right.cumprod(1).sum(1),
        signals={Signal.CONFIDENCE: confidence},
        autoregressive=False,
    )


def modelled_cost(device: str = "h100") -> Roofline:
    """Qwen3-8B in bfloat16 on one device, at efficiencies that serving engines reach."""
    return Roofline(
        target=named_shape("qwen3_8b"),
        device=device_of(device),
        dtype="bfloat16",
        kv_dtype="bfloat16",
        mfu=0.6,
        mbu=0.7,
        overhead_s=5e-4,
    )


def curves(
    policies: Sequence[str],
    rates_per_s: Sequence[float],
    num_requests: int,
    *,
    trace: AcceptanceTrace,
    cost: Roofline,
    path: Path | None = None,
    advance: Callable[[str], None] = lambda _: None,
) -> Curves:
    """Serve the same arrivals with each policy.

    Args:
        policies: of ``POLICIES``.
        rates_per_s: of arrivals, a Poisson process each.
        num_requests: that arrive.
        trace: what would be drafted and accepted.
        cost: seconds of a step.
        path: a file of JSON lines that keeps points; those in it are not simulated again.
        advance: told of each point.
    """
    done: dict[tuple[str, float], LoadPoint] = {}
    if path is not None:
        drop_torn_line(path)
        done = {(item["policy"], item["rate_per_s"]): _point(item["point"]) for item in read_jsonl(path)}
    found: Curves = {name: [] for name in policies}
    for rate in rates_per_s:
        demand = Demand.poisson(trace, num_requests=num_requests, rate_per_s=rate, seed=SEED)
        for name in policies:
            advance(f"{name}, {rate:g} requests/s")
            if (name, rate) not in done:
                point = simulate(trace, POLICIES[name], demand, cost=cost, service=SERVICE)
                done[name, rate] = point
                if path is not None:
                    with JsonlWriter(path) as writer:
                        writer.write({"policy": name, "rate_per_s": rate, "point": asdict(point)})
            found[name].append(done[name, rate])
    return found


def _point(item: Mapping[str, Any]) -> LoadPoint:
    """The point of a line, in which tuples have become lists."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}
    return LoadPoint(**values)
