"""The measurement of decision times covers every policy of the configuration."""

from __future__ import annotations

import torch

from dspark.config.paths import config_dir
from experiments.bench.policies import BAR_MS, DecisionTime, policy_times


def test_every_policy_is_measured_and_threads_are_put_back():
    num_threads = torch.get_num_threads()
    rows = policy_times(num_steps=3, num_warm_up=1)
    assert torch.get_num_threads() == num_threads
    assert [row.policy for row in rows] == sorted(
        path.stem for path in (config_dir() / "policy").glob("*.yaml")
    )
    for row in rows:
        assert row.median_ms > 0
        assert row.slow_ms >= row.median_ms


def test_the_bar_is_for_slow_steps_and_for_stops_on_the_way():
    fast = {
        "plan_ms": 0.1,
        "proceed_ms": 0.1,
        "trim_ms": 0.1,
        "observe_ms": 0.1,
        "median_ms": 0.3,
        "slow_ms": 0.3,
    }
    assert DecisionTime(policy="x", **fast).passed
    assert not DecisionTime(policy="x", **{**fast, "slow_ms": BAR_MS + 0.01}).passed
    assert not DecisionTime(policy="x", **{**fast, "proceed_ms": BAR_MS + 0.01}).passed
