"""Policies that weigh tokens against a cost model, as the contract tests run them."""

from __future__ import annotations

from dspark.policies.confidence import Confidence
from dspark.policies.dcut import DCut
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.policies.retrospective_argmax import RetrospectiveArgmax
from dspark.policies.sglang_throughput import SglangThroughput
from dspark.policies.smartspec import Smartspec
from dspark.policies.stale_scheduler import StaleScheduler
from dspark.policies.tetris import Tetris
from dspark.types import LosslessClass

A, C, D = LosslessClass.FIXED, LosslessClass.PRE_TOKEN, LosslessClass.SAMPLED

POLICIES = {
    "smartspec": (Smartspec(depth=6, interval=1, probe_every=2), A, False),
    "smartspec_arg_max": (Smartspec(depth=6, scan="arg_max", interval=3, double_count=True), A, False),
    "sglang_throughput": (
        SglangThroughput(depths=[0, 1, 3, 6], window=2, interval=1, probe_every=2),
        A,
        False,
    ),
    "prefix_scheduler": (PrefixScheduler(depth=6), C, False),
    "prefix_scheduler_top1": (PrefixScheduler(depth=6, estimator="top1"), C, False),
    "prefix_scheduler_learning": (
        PrefixScheduler(
            depth=7, estimator="margin_logistic", estimator_settings={"warmup_fits": 0}, probe_every=4
        ),
        C,
        False,
    ),
    "retrospective_argmax": (RetrospectiveArgmax(depth=6), D, False),
    "stale_scheduler": (StaleScheduler(depth=6), C, False),
    "stale_scheduler_1": (StaleScheduler(depth=6, staleness=1, estimator="entropy_bound"), C, False),
    "dcut": (DCut(depth=6), D, False),
    "dcut_stale": (DCut(depth=6, staleness=1), C, False),
    "tetris": (Tetris(depth=3, extra=3), D, False),
    "sampled_drop": (Confidence(depth=6, signal="token_probability", stop="before", threshold=0.5), D, True),
}
