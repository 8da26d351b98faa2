"""Which policy runs with which drafter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from dspark.drafters import NgramDrafter, SyntheticDrafter
from dspark.policies import BatchTable, Confidence, Dsde, Fixed, check_policy
from dspark.types import Signal

SYNTHETIC = SyntheticDrafter(100, (0.8,))
NGRAM = NgramDrafter()


@dataclass(frozen=True, kw_only=True)
class SampledDrafter:
    """What the check sees of a draft model: it samples and gives every signal."""

    signals: frozenset[Signal] = frozenset(Signal)
    deterministic: bool = False


@dataclass(frozen=True, kw_only=True)
class GoodputTable(Fixed):
    """A policy that asks for a cost model."""

    needs_cost: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Boundless(Fixed):
    """A policy with an impossible bound."""

    depth: int = 0

    @property
    def max_depth(self) -> int:
        return -1


def message(policy, drafter, **options) -> str:
    options.setdefault("cost_available", False)
    with pytest.raises(ValueError, match="policy") as refusal:
        check_policy(policy, drafter, **options)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("policy", "drafter"),
    [
        (Fixed(depth=0), None),
        (Fixed(depth=4), NGRAM),
        (BatchTable(disable_by_batch_size=4, depth=2), SYNTHETIC),
        (Confidence(depth=4), NGRAM),
        (Confidence(depth=4, signal="confidence"), SYNTHETIC),
        (Confidence(depth=4), SampledDrafter()),
        (Confidence(depth=4, signal="top1_probability", stop="before"), SampledDrafter()),
    ],
)
def test_what_goes_together_passes(policy, drafter):
    check_policy(policy, drafter, cost_available=False)


def test_a_missing_signal_is_named_with_both_sides():
    assert message(Confidence(depth=4, signal="top1_probability"), SYNTHETIC) == (
        "policy confidence needs the signal top1_probability, which the drafter synthetic does not give;"
        " it gives confidence"
    )
    two = SampledDrafter(signals=frozenset({Signal.TOP1_PROBABILITY, Signal.ENTROPY}))
    assert message(Confidence(depth=4), two).endswith("it gives entropy, top1_probability")


def test_divergence_comes_from_the_target_and_not_from_the_drafter():
    check_policy(Dsde(depth=4), NGRAM, cost_available=False)


def test_a_class_stands_for_a_drafter_that_is_not_built_yet():
    policy = Confidence(depth=4, signal="top1_probability")
    synthetic = SampledDrafter(signals=SyntheticDrafter.signals)
    assert message(policy, SyntheticDrafter).endswith("it gives confidence")
    assert message(policy, synthetic).endswith("it gives confidence")


def test_a_drafter_without_signals_says_so():
    silent = SampledDrafter(signals=frozenset())
    assert message(Confidence(depth=4), silent).endswith("it gives none")


def test_a_policy_that_needs_a_cost_model_names_how_to_set_one():
    policy = GoodputTable(depth=4)
    assert "goodput_table needs a cost model" in message(policy, NGRAM)
    assert "cost=linear" in message(policy, NGRAM)
    check_policy(policy, NGRAM, cost_available=True)


def test_drafting_without_a_drafter_is_refused():
    assert message(Fixed(depth=3), None) == (
        "policy fixed drafts up to 3 tokens, and the run has no drafter: choose one, or depth 0"
    )
    assert "batch_table" in message(BatchTable(ranges=[[1, 9, 2]]), None)


def test_an_impossible_bound_is_refused():
    assert message(Boundless(), NGRAM) == "the max_depth of policy boundless must be >= 0, got -1"
