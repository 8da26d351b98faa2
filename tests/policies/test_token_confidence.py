"""token_confidence: the presets of the confidence rule under their engines' names and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dspark.config.build import build_policy
from dspark.config.schema import component
from dspark.policies import Confidence
from dspark.types import LosslessClass, Signal
from tests.policies.drafting import block_of, verified_either_way

YAML = Path(__file__).resolve().parents[2] / "configs/policy/token_confidence.yaml"


def preset(**changes: object) -> Confidence:
    node = OmegaConf.to_container(OmegaConf.load(YAML))
    assert isinstance(node, dict)
    policy = build_policy(component({**node, **changes}, "policy"))
    assert isinstance(policy, Confidence)
    return policy


def test_the_preset_is_transformers_rule_with_its_numbers(step_context):
    policy = preset()
    assert (policy.threshold, policy.depth, policy.lossless_class) == (0.4, 20, LosslessClass.STOP_AFTER)
    block = block_of(
        {Signal.TOKEN_PROBABILITY: [[0.9, 0.41, 0.39, 0.9], [0.4, 0.4, 0.4, 0.4], [0.1, 0.9, 0.9, 0.9]]}
    )
    assert verified_either_way(policy, step_context(3), block, None) == [3, 4, 1]


@pytest.mark.parametrize(
    ("stop", "lossless_class", "verified"),
    [("after", LosslessClass.STOP_AFTER, [3, 1]), ("before", LosslessClass.PRE_TOKEN, [2, 0])],
)
def test_llama_cpp_compares_the_top_probability(stop, lossless_class, verified, step_context):
    policy = preset(signal="top1_probability", threshold=0.75, stop=stop)
    assert policy.lossless_class is lossless_class
    block = block_of({Signal.TOP1_PROBABILITY: [[0.9, 0.75, 0.7, 0.9], [0.7, 0.9, 0.9, 0.9]]})
    assert verified_either_way(policy, step_context(2), block, None) == verified
