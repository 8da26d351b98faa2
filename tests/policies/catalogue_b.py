"""Policies that stop or drop by what the drafter says of its tokens: name -> (policy, class, row local)."""

from __future__ import annotations

from dspark.policies.adaedl import Adaedl
from dspark.policies.confidence import Confidence
from dspark.policies.confidence_stop import ConfidenceStop
from dspark.policies.draft_verify import DraftVerify
from dspark.policies.specdecpp import Specdecpp
from dspark.policies.svip import Svip
from dspark.types import LosslessClass

B, C = LosslessClass.STOP_AFTER, LosslessClass.PRE_TOKEN
LEARNT = {"refit_every": 2, "warmup_fits": 1, "min_observations": 3}

# the contract drafts up to 7 tokens, and an estimator knows as many positions as its policy has depth
POLICIES = {
    "token_confidence": (Confidence(depth=20), B, True),
    "token_confidence_before": (Confidence(depth=8, signal="top1_probability", stop="before"), C, True),
    "draft_verify": (DraftVerify(depth=6, threshold=0.3, increment=0.5), B, True),
    "svip": (Svip(depth=6, c=0.15, threshold=0.25), B, True),
    "adaedl": (Adaedl(depth=6, threshold=0.6, increment=0.5), B, True),
    "specdecpp": (Specdecpp(depth=7), B, True),
    "specdecpp_lag": (Specdecpp(depth=7, min_depth=1, lag=True, estimator="token_probability"), B, True),
    "specdecpp_calibrated": (Specdecpp(depth=7, estimator="confidence", temperatures=[0.5] * 7), B, True),
    "specdecpp_ema": (Specdecpp(depth=7, estimator="request_ema"), B, True),
    "specdecpp_window": (Specdecpp(depth=7, estimator="position_window"), B, True),
    "specdecpp_margin": (
        Specdecpp(depth=7, estimator="margin_logistic", estimator_settings=LEARNT),
        B,
        True,
    ),
    "confidence_stop": (ConfidenceStop(depth=6, threshold=0.8), C, False),
}
