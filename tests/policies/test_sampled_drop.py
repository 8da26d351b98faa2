"""The preset ``sampled_drop``: dropping a token because it is unlikely, and what that does."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
import yaml

from dspark.config.build import build_policy
from dspark.config.paths import config_dir
from dspark.config.schema import component
from dspark.policies import Confidence
from dspark.types import Draft, LosslessClass, Signal
from dspark.verification import Rejection, check_combination


@pytest.fixture(scope="module")
def policy():
    text = (config_dir() / "policy" / "sampled_drop.yaml").read_text(encoding="utf-8")
    return build_policy(component(yaml.safe_load(text), "policy"))


def test_it_is_the_confidence_policy_by_the_drawn_token(policy):
    assert isinstance(policy, Confidence)
    assert policy.lossless_class is LosslessClass.SAMPLED


def test_it_is_refused_for_a_drafter_that_samples(policy):
    with pytest.raises(ValueError, match="class D"):
        check_combination(policy, Rejection(), deterministic_drafter=False, all_greedy=False)


def test_its_output_leans_to_likely_tokens(policy, step_context):
    """p = (0.7, 0.3), q = (0.6, 0.4): B is dropped and redrawn from p, so A has 0.6 + 0.4 · 0.7."""
    p, q = (Fraction(7, 10), Fraction(3, 10)), (Fraction(6, 10), Fraction(4, 10))
    law = [Fraction(0), Fraction(0)]
    for token in (0, 1):
        draft = Draft(
            tokens=torch.tensor([[token]]),
            lengths=torch.tensor([1]),
            q=None,
            signals={Signal.TOKEN_PROBABILITY: torch.tensor([[float(q[token])]])},
        )
        if policy.trim(step_context(1), draft, None).tolist() == [1]:
            assert p[token] >= q[token]  # accepted for certain
            law[token] += q[token]
        else:
            law = [mass + q[token] * wanted for mass, wanted in zip(law, p, strict=True)]
    assert law == [Fraction(88, 100), Fraction(12, 100)]
