"""Depth policies: one idea a file, the contract in ``base``."""

from dspark.policies.adaedl import Adaedl
from dspark.policies.bandit import Bandit
from dspark.policies.base import Policy
from dspark.policies.batch_table import BatchTable
from dspark.policies.cascade import Cascade
from dspark.policies.check import check_policy
from dspark.policies.confidence import Confidence
from dspark.policies.confidence_stop import ConfidenceStop
from dspark.policies.dcut import DCut
from dspark.policies.draft_verify import DraftVerify
from dspark.policies.dsde import Dsde
from dspark.policies.ema import Ema
from dspark.policies.fixed import Fixed
from dspark.policies.gammatune import Gammatune
from dspark.policies.hf_heuristic import HfHeuristic
from dspark.policies.leviathan import Leviathan
from dspark.policies.nightjar import Nightjar
from dspark.policies.per_request_ema import PerRequestEma
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.policies.retrospective_argmax import RetrospectiveArgmax
from dspark.policies.sglang_throughput import SglangThroughput
from dspark.policies.smartspec import Smartspec
from dspark.policies.specdecpp import Specdecpp
from dspark.policies.stale_scheduler import StaleScheduler
from dspark.policies.svip import Svip
from dspark.policies.tetris import Tetris

__all__ = [
    "Adaedl",
    "Bandit",
    "BatchTable",
    "Cascade",
    "Confidence",
    "ConfidenceStop",
    "DCut",
    "DraftVerify",
    "Dsde",
    "Ema",
    "Fixed",
    "Gammatune",
    "HfHeuristic",
    "Leviathan",
    "Nightjar",
    "PerRequestEma",
    "Policy",
    "PrefixScheduler",
    "RetrospectiveArgmax",
    "SglangThroughput",
    "Smartspec",
    "Specdecpp",
    "StaleScheduler",
    "Svip",
    "Tetris",
    "check_policy",
]
