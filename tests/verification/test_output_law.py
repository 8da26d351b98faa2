"""The text that leaves a rule, over several rounds of ragged depth, follows the target's law."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dspark.seeding import Purpose, uniform
from dspark.types import SamplingParams
from dspark.verification import Block, Coupled, Rejection, Verification, draws
from tests.verification.toy_engine import chi_square_p_value, exact_joint, generate, toy_logits

RULES = [Rejection(), Block(), Coupled()]
BY_NAME = pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
PARAMS = {
    "plain": SamplingParams(temperature=1.0),
    "cold_top_k": SamplingParams(temperature=0.7, top_k=3),
    "hot_top_p": SamplingParams(temperature=1.4, top_p=0.8),
    "both_cuts": SamplingParams(temperature=1.2, top_k=3, top_p=0.9),
    "penalised": SamplingParams(temperature=1.0, repetition_penalty=1.7, min_new_tokens=2),
}
NUM_NEW = 4
NUM_ROWS = dict.fromkeys(PARAMS, 8000) | {"penalised": 4000}  # penalties go row by row
PASSES = 1e-4  # of 5 x 3 + 5 tests on fixed seeds


@BY_NAME
@pytest.mark.parametrize("name", PARAMS)
def test_drafts_drawn_from_q(rule: Verification, name: str) -> None:
    target, drafter = toy_logits(1, 4), toy_logits(2, 4, spread=1.0)
    run = generate(rule, target, drafter, PARAMS[name], num_rows=NUM_ROWS[name], num_new=NUM_NEW, seed=10**6)
    assert run.rounds >= 3
    assert 0.2 < run.accepted / run.verified < 0.95
    assert chi_square_p_value(run.tokens, exact_joint(target, PARAMS[name], NUM_NEW)) > PASSES


@BY_NAME
def test_drafts_that_stop_after_an_unlikely_token(rule: Verification) -> None:
    """Class B: the last draft's own probability decides whether another one follows."""
    target, drafter = toy_logits(3, 4), toy_logits(4, 4, spread=1.0)
    params = PARAMS["plain"]
    run = generate(rule, target, drafter, params, num_rows=8000, num_new=NUM_NEW, stop_unlikely=True)
    assert chi_square_p_value(run.tokens, exact_joint(target, params, NUM_NEW)) > PASSES


@BY_NAME
def test_deterministic_drafts(rule: Verification) -> None:
    target, drafter = toy_logits(5, 4), toy_logits(6, 4)
    params = PARAMS["cold_top_k"]
    run = generate(rule, target, drafter, params, num_rows=8000, num_new=NUM_NEW, deterministic=True)
    assert 0 < run.accepted < run.verified
    assert chi_square_p_value(run.tokens, exact_joint(target, params, NUM_NEW)) > PASSES


def test_the_test_sees_a_wrong_target() -> None:
    """One part in ten of another model is enough to fail."""
    target, other = toy_logits(1, 4), toy_logits(9, 4)
    run = generate(Rejection(), target, target, PARAMS["plain"], num_rows=8000, num_new=NUM_NEW)
    joint = exact_joint(0.9 * target + 0.1 * other, PARAMS["plain"], NUM_NEW)
    assert chi_square_p_value(run.tokens, joint) < 1e-6


class TestRoundsHaveNumbersOfTheirOwn:
    """Block verification learns from drafts it does not keep, so it must not meet their numbers again.

    The same p and q after every prefix, and always full depth: the case with the most to learn.
    Where nothing is accepted, the last drafts were unlikely and their uniforms large.
    """

    TARGET = torch.tensor([0.3, 0.2, 0.5]).log().expand(3, 3, 3)
    DRAFTER = torch.tensor([0.4, 0.4, 0.2]).log().expand(3, 3, 3)

    def _p_value(self, rule: Verification) -> float:
        params = PARAMS["plain"]
        run = generate(rule, self.TARGET, self.DRAFTER, params, num_rows=20_000, num_new=4, ragged=False)
        return chi_square_p_value(run.tokens, exact_joint(self.TARGET, params, 4))

    def test_block_is_exact(self) -> None:
        assert self._p_value(Block()) > PASSES

    @pytest.mark.parametrize("purpose", [Purpose.DRAFT, Purpose.ACCEPT])
    def test_block_without_lanes_is_biased(self, purpose: Purpose, monkeypatch: pytest.MonkeyPatch) -> None:
        """Either stream is enough to see it."""
        _drop_lanes(monkeypatch, {purpose})
        assert self._p_value(Block()) < 1e-8

    def test_token_by_token_does_not_look_ahead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The reason is the look-ahead: the token rule never sees what lies past its first rejection."""
        _drop_lanes(monkeypatch, {Purpose.DRAFT, Purpose.ACCEPT, Purpose.FINAL})
        assert self._p_value(Rejection()) > PASSES


def _drop_lanes(monkeypatch: pytest.MonkeyPatch, purposes: set[Purpose]) -> None:
    """Name the numbers of some streams by seed, position and purpose alone."""

    def without_lanes(seeds: Tensor, positions: Tensor, purpose: Purpose, lanes: Tensor) -> Tensor:
        return uniform(seeds, positions, purpose, lanes * (purpose not in purposes))

    monkeypatch.setattr(draws, "uniform", without_lanes)
