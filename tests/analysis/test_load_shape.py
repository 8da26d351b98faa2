"""The shape of DSpark's production curves (arXiv 2607.05147, figures 7 and 8), on a modelled GPU."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.analysis.load import LoadPoint, Service, simulate
from dspark.analysis.replay.demand import Demand
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.hardware import device_of
from dspark.cost.named_shapes import named_shape
from dspark.cost.roofline import Roofline
from dspark.policies.fixed import Fixed
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.types import Signal

DEPTH = 5


@pytest.fixture(scope="module")
def trace() -> AcceptanceTrace:
    """Drafts of a block drafter whose confidence is right: some are sure of themselves, some are not."""
    generator = np.random.default_rng(0)
    num, length = 120, 120
    count = num * (length - 1)
    falling = np.array([1.0, 0.98, 0.96, 0.95, 0.94])
    confidence = np.clip(generator.beta(4, 1, size=(count, 1)) * falling, 0.02, 0.99)
    right = generator.random((count, DEPTH)) < confidence
    return AcceptanceTrace(
        depth=DEPTH,
        request_ids=tuple(map(str, range(num))),
        prompt_tokens=np.full(num, 500),
        output_tokens=np.full(num, length),
        max_tokens=np.full(num, 500 + length),
        drafted=np.full(count, DEPTH),
        accepted=right.cumprod(1).sum(1),
        signals={Signal.CONFIDENCE: confidence},
        autoregressive=False,
    )


@pytest.mark.slow
def test_verified_length_falls_with_load_and_throughput_is_never_below_a_fixed_depth(trace) -> None:
    cost = Roofline(
        target=named_shape("qwen3_8b"),
        device=device_of("h200"),
        dtype="bfloat16",
        kv_dtype="bfloat16",
        mfu=0.6,
        mbu=0.7,
        overhead_s=5e-4,
    )
    policies = {
        "fixed 1": Fixed(depth=1),
        "fixed 5": Fixed(depth=5),
        "dynamic": PrefixScheduler(depth=5, estimator="confidence"),
    }
    curves: dict[str, list[LoadPoint]] = {name: [] for name in policies}
    for rate_per_s in (10.0, 60.0, 120.0, 240.0):
        demand = Demand.poisson(trace, num_requests=500, rate_per_s=rate_per_s, seed=0)
        for name, policy in policies.items():
            curves[name].append(
                simulate(trace, policy, demand, cost=cost, service=Service(max_batch_size=512))
            )
    dynamic = curves["dynamic"]
    verified = [point.mean_verified for point in dynamic]
    concurrency = [point.mean_concurrency for point in dynamic]
    assert concurrency == sorted(concurrency)
    assert verified == sorted(verified, reverse=True)
    assert verified[0] >= 4
    assert verified[-1] <= 2
    for name in ("fixed 1", "fixed 5"):
        for ours, theirs in zip(dynamic, curves[name], strict=True):
            assert ours.modelled_tokens_per_s >= 0.995 * theirs.modelled_tokens_per_s, name
    # light load: as fast for a user as the deepest; full load: more throughput than either
    assert dynamic[0].modelled_user_tokens_per_s > 0.98 * curves["fixed 5"][0].modelled_user_tokens_per_s
    assert dynamic[0].modelled_user_tokens_per_s > 1.5 * curves["fixed 1"][0].modelled_user_tokens_per_s
    assert dynamic[-1].modelled_tokens_per_s > 1.02 * curves["fixed 1"][-1].modelled_tokens_per_s
    assert dynamic[-1].modelled_tokens_per_s > 1.05 * curves["fixed 5"][-1].modelled_tokens_per_s
