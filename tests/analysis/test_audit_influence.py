"""The class that a policy really has, whatever it declares; and the same question asked of real steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dspark.analysis.audit import perturb, trace_cost
from dspark.analysis.audit.decide import Facts, with_another_rest, with_another_token
from dspark.analysis.audit.influence import influence
from dspark.models.target import HFTarget, load_target
from dspark.policies.base import Policy
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.types import LosslessClass, Signal
from tests.analysis.adversaries import (
    CoinFlip,
    DropUnlikely,
    FullDepth,
    Learner,
    LookAhead,
    PeekAtQ,
    PeekAtTokens,
    StopAfterUnlikely,
    WhileConfident,
)

A, B, C, D = list(LosslessClass)[:4]


class TestInfluence:
    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (FullDepth(), A),
            (Learner(), A),
            (StopAfterUnlikely(), B),
            (WhileConfident(), C),
            (DropUnlikely(), D),
            (LookAhead(), D),
            (PeekAtTokens(), D),
            (PeekAtQ(), D),
        ],
    )
    def test_classes_are_told_apart(self, policy: Policy, expected: LosslessClass) -> None:
        found = influence(policy, num_steps=120, seed=0)
        assert found.reach.lossless_class is expected
        assert (found.num_flips > 0) is (expected is D)
        assert found.num_decisions == 120

    def test_a_policy_that_never_drafts_decides_nothing(self) -> None:
        assert influence(Fixed(depth=0), num_steps=5, seed=0).num_decisions == 0

    def test_an_answer_that_changes_by_itself_is_refused(self) -> None:
        with pytest.raises(ValueError, match="CoinFlip answered .* to the same question: hooks must be pure"):
            influence(CoinFlip(), num_steps=50, seed=0)

    def test_the_same_seed_sees_the_same(self) -> None:
        policy = DropUnlikely()
        assert influence(policy, num_steps=60, seed=3) == influence(policy, num_steps=60, seed=3)


class TestChanges:
    """Facts of two rows and three positions; entry 10 * row + position, and 100 more in the other ones."""

    FACTS = Facts(
        tokens=torch.tensor([[0, 1, 2], [10, 11, 12]]),
        q=torch.tensor([[[0.0], [1.0], [2.0]], [[10.0], [11.0], [12.0]]]),
        signals={
            Signal.ENTROPY: torch.tensor([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]),
            Signal.TOKEN_PROBABILITY: torch.tensor([[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]),
        },
    )
    OTHER = Facts(
        tokens=FACTS.tokens + 100,
        q=FACTS.q + 100,
        signals={name: values + 100 for name, values in FACTS.signals.items()},
    )

    def test_another_token_changes_what_follows_from_it_in_its_row(self) -> None:
        changed = with_another_token(self.FACTS, self.OTHER, row=1, k=1)
        after_token, behind = [[0, 1, 2], [10, 111, 112]], [[0, 1, 2], [10, 11, 112]]
        assert changed.tokens.tolist() == after_token
        assert changed.signals[Signal.TOKEN_PROBABILITY].tolist() == after_token
        assert changed.signals[Signal.ENTROPY].tolist() == behind
        assert changed.q.squeeze(-1).tolist() == behind

    def test_another_rest_changes_all_rows(self) -> None:
        changed = with_another_rest(self.FACTS, self.OTHER, 1)
        rest = [[0, 101, 102], [10, 111, 112]]
        assert changed.tokens.tolist() == rest
        assert all(values.tolist() == rest for values in changed.signals.values())
        assert changed.q.squeeze(-1).tolist() == rest


@pytest.fixture(scope="module")
def models(tiny_llama: Path, tiny_llama_drafter: Path) -> tuple[HFTarget, HFTarget]:
    return load_target(tiny_llama), load_target(tiny_llama_drafter)


class TestPerturbation:
    def _flips(self, policy: Policy, models: tuple[HFTarget, HFTarget]):
        target, model = models
        result = perturb(policy, target, model, cost=trace_cost(0), num_steps=10, num_redraws=80, seed=0)
        assert result.num_steps >= 8
        assert 40 <= result.num_decisions <= 80
        return result.flips

    @pytest.mark.parametrize(
        "policy",
        [
            Fixed(depth=3),
            Confidence(depth=4, threshold=0.2),
            Confidence(depth=4, threshold=0.2, signal="top1_probability", stop="before"),
            PrefixScheduler(depth=4, estimator="top1"),
            PrefixScheduler(depth=4),  # a stand-in for the confidence head
        ],
    )
    def test_honest_policies_do_not_change_their_mind(self, policy: Policy, models) -> None:
        assert self._flips(policy, models) == ()

    @pytest.mark.parametrize(
        "policy",
        [
            Confidence(depth=4, threshold=0.2, stop="before"),  # declares class D: recorded under coupled
            PeekAtTokens(depth=4),  # declares class A
            PeekAtQ(depth=4),
        ],
    )
    def test_cheats_do(self, policy: Policy, models) -> None:
        flips = self._flips(policy, models)
        assert flips
        for flip in flips:
            assert flip.token != flip.other_token or flip.position < 4
            assert (flip.verified >= flip.position) is not (flip.other_verified >= flip.position)

    def test_a_policy_without_drafts_has_nothing_to_redraw(self, models) -> None:
        target, model = models
        result = perturb(
            Fixed(depth=0), target, model, cost=trace_cost(0), num_steps=3, num_redraws=9, seed=0
        )
        assert (result.num_steps, result.num_decisions, result.flips) == (0, 0, ())
