"""Policies whose depth is fixed before drafting, as the contract tests run them."""

from __future__ import annotations

from dspark.policies.bandit import Bandit
from dspark.policies.cascade import Cascade
from dspark.policies.dsde import Dsde
from dspark.policies.ema import Ema
from dspark.policies.gammatune import Gammatune
from dspark.policies.hf_heuristic import HfHeuristic
from dspark.policies.leviathan import Leviathan
from dspark.policies.nightjar import Nightjar
from dspark.policies.per_request_ema import PerRequestEma
from dspark.types import LosslessClass

A = LosslessClass.FIXED
TIERS = {"tiers": {1: [0, 2, 4], 5: [0, 1]}, "start": 0, "down_hysteresis": {}, "warmup_steps": 0}
ARMS = {"depths": [0, 1, 2, 4], "batch_starts": [1, 4, 8]}

POLICIES = {
    "leviathan": (Leviathan(), A, True),
    "leviathan_constant": (Leviathan(alpha=0.8, cost_ratio=0.1), A, True),
    "hf_heuristic": (HfHeuristic(start=3, depth=7), A, True),
    "hf_heuristic_transient": (HfHeuristic(schedule="heuristic_transient", depth=7), A, True),
    "hf_heuristic_constant": (HfHeuristic(schedule="constant", start=3), A, True),
    "ema": (Ema(), A, False),
    "ema_quick": (
        Ema(tiers={1: [0, 2, 4], 5: [0, 1]}, start=0, down_hysteresis={}, warmup_steps=0),
        A,
        False,
    ),
    "per_request_ema": (PerRequestEma(), A, True),
    "per_request_ema_to_0": (
        PerRequestEma(min_depth=0, weight=1.0, increase="multiplicative", decrease="additive", probe_every=2),
        A,
        True,
    ),
    "gammatune": (Gammatune(depth=8), A, True),
    "dsde": (Dsde(depth=8, calibration_tokens=6), A, False),
    "dsde_without_cap": (Dsde(depth=8, calibration_tokens=6, cap=False), A, True),
    "bandit_ucb": (Bandit(), A, False),
    "bandit_ucb_own": (Bandit(bonus="own", **ARMS), A, False),
    "bandit_exp3": (Bandit(algorithm="exp3", **ARMS), A, False),
    "bandit_epsilon_greedy": (Bandit(algorithm="epsilon_greedy", **ARMS), A, False),
    "nightjar": (Nightjar(), A, False),
    "cascade": (Cascade(num_trials=1, set_steps=2), A, False),
}
