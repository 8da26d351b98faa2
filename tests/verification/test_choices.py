"""Rules by name, and which depth policies they may be combined with."""

from __future__ import annotations

import pytest
from torch import Tensor

from dspark.policies.base import Policy, State
from dspark.types import LosslessClass, StepContext
from dspark.verification import (
    VERIFICATIONS,
    Block,
    Coupled,
    Greedy,
    Rejection,
    SyntheticAcceptance,
    Verification,
    build_verification,
    check_combination,
)


class TestBuild:
    def test_every_rule_by_its_name(self) -> None:
        assert build_verification("rejection") == Rejection()
        assert build_verification("block") == Block()
        assert build_verification("coupled") == Coupled()
        assert build_verification("greedy") == Greedy()
        assert build_verification("synthetic", rates=[0.5, 0.25]) == SyntheticAcceptance((0.5, 0.25))
        assert build_verification("synthetic") == SyntheticAcceptance(None)
        assert [build_verification(name).name for name in VERIFICATIONS] == list(VERIFICATIONS)

    def test_a_near_miss_is_recognised(self) -> None:
        with pytest.raises(
            ValueError, match="unknown verification 'rejektion': did you mean 'rejection'"
        ) as error:
            build_verification("rejektion")
        assert str(error.value).endswith("choose one of rejection, block, coupled, greedy, synthetic")

    def test_anything_else_gets_the_choices(self) -> None:
        with pytest.raises(ValueError, match="unknown verification 'xyz': choose one of rejection, block"):
            build_verification("xyz")

    def test_rates_are_not_ignored(self) -> None:
        with pytest.raises(ValueError, match=r"'block' .* takes no rates, got \[0\.5\]: .*'synthetic'"):
            build_verification("block", rates=[0.5])


def _policy(lossless: LosslessClass) -> Policy:
    class Declared(Policy):
        lossless_class = lossless

        @property
        def max_depth(self) -> int:
            return 1

        def plan(self, ctx: StepContext, state: State) -> Tensor:
            return ctx.depth_caps

    return Declared()


class TestCombination:
    """Dropping a draft by its own token is refused exactly where it would change the law."""

    @pytest.mark.parametrize("rule", [Rejection(), Block()], ids=["rejection", "block"])
    def test_refused_under_rejection(self, rule: Verification) -> None:
        policy = _policy(LosslessClass.SAMPLED)
        with pytest.raises(ValueError, match=f"class D.*biased under verification '{rule.name}'.*'coupled'"):
            check_combination(policy, rule, deterministic_drafter=False, all_greedy=False)

    @pytest.mark.parametrize("rule", [Rejection(), Block()], ids=["rejection", "block"])
    def test_allowed_where_nothing_is_sampled(self, rule: Verification) -> None:
        policy = _policy(LosslessClass.SAMPLED)
        check_combination(policy, rule, deterministic_drafter=True, all_greedy=False)
        check_combination(policy, rule, deterministic_drafter=False, all_greedy=True)

    @pytest.mark.parametrize("rule", [Coupled(), Greedy()], ids=["coupled", "greedy"])
    def test_allowed_where_tokens_are_compared(self, rule: Verification) -> None:
        assert rule.unbiased_for_class_d
        policy = _policy(LosslessClass.SAMPLED)
        check_combination(policy, rule, deterministic_drafter=False, all_greedy=False)

    def test_allowed_where_no_claim_is_made(self) -> None:
        policy = _policy(LosslessClass.SAMPLED)
        check_combination(policy, SyntheticAcceptance((0.5,)), deterministic_drafter=False, all_greedy=False)

    @pytest.mark.parametrize(
        "lossless", [each for each in LosslessClass if each is not LosslessClass.SAMPLED]
    )
    @pytest.mark.parametrize("name", VERIFICATIONS)
    def test_other_classes_go_with_every_rule(self, lossless: LosslessClass, name: str) -> None:
        rule = build_verification(name)
        check_combination(_policy(lossless), rule, deterministic_drafter=False, all_greedy=False)
