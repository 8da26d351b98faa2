"""Decisions that hang on their own token: found in toy worlds, told in words."""

from __future__ import annotations

import pytest

from dspark.analysis.audit import EXACT_RULES
from dspark.analysis.audit.cases import Shape, appendix_a, random_world, sampled_drop, tetris_at_three
from dspark.analysis.audit.drive import Drive
from dspark.analysis.audit.flips import find_flip, hunt
from dspark.analysis.audit.output_law import output_law
from dspark.analysis.audit.words import counterexample
from dspark.policies.base import Policy
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.policies.retrospective_argmax import RetrospectiveArgmax
from dspark.policies.tetris import Tetris
from tests.analysis.adversaries import (
    DropUnlikely,
    EachOther,
    FullDepth,
    Learner,
    LookAhead,
    StopAfterUnlikely,
    WhileConfident,
)

REJECTION = EXACT_RULES["rejection"]


def _words(policy: Policy, world) -> str:
    law = output_law(policy, world, REJECTION)
    return counterexample(world, law, find_flip(Drive(policy, world, REJECTION), law.visited))


class TestFlips:
    def test_appendix_a_turns_on_its_first_token(self) -> None:
        drive = Drive(RetrospectiveArgmax(depth=2), appendix_a(), REJECTION)
        flip = find_flip(drive, [drive.begin()])
        assert (flip.row, flip.position, flip.output, flip.beside) == (0, 1, (), ())
        assert (flip.kept[0], flip.kept_length) == (0, 2)
        assert (flip.dropped[0], flip.dropped_length) == (1, 0)

    @pytest.mark.parametrize("policy", [FullDepth(), Learner(), StopAfterUnlikely(), WhileConfident()])
    @pytest.mark.parametrize("autoregressive", [False, True])
    def test_honest_policies_have_none(self, policy: Policy, autoregressive: bool) -> None:
        assert hunt(policy, tries=30, seed=0, autoregressive=[autoregressive]) == []

    def test_a_look_at_the_other_row_is_none(self) -> None:
        """It may depend on other requests; that two rows may not do so mutually shows in the joint law."""
        drive = Drive(EachOther(), random_world(Shape(num_requests=2, vocab_size=2, horizon=3), 1), REJECTION)
        assert find_flip(drive, [drive.begin()]) is None

    def test_a_later_token_counts_too(self) -> None:
        """The second confidence depends on x_1 only, so x_2 decides nothing and x_1 everything."""
        world = random_world(Shape(num_requests=1, vocab_size=2, horizon=3), 0)
        drive = Drive(LookAhead(depth=2), world, REJECTION)
        flip = find_flip(drive, [drive.begin()])
        assert flip.position == 1


class TestHunt:
    def test_it_finds_the_bias_of_appendix_a_by_itself(self) -> None:
        caught = hunt(RetrospectiveArgmax(depth=7), tries=120, seed=0, autoregressive=[False])
        assert caught
        assert max(output_law(RetrospectiveArgmax(depth=7), world, REJECTION).bias for world in caught) > 0

    @pytest.mark.parametrize("seed", range(3))
    def test_the_early_stop_escapes_it(self, seed: int) -> None:
        assert hunt(PrefixScheduler(depth=7), tries=60, seed=seed, autoregressive=[False]) == []

    def test_competing_rows_are_among_its_grounds(self) -> None:
        caught = hunt(Tetris(depth=3), tries=9, seed=0, autoregressive=[False])
        assert {len(world.requests) for world in caught} == {2}

    def test_the_same_seed_hunts_the_same_worlds(self) -> None:
        first, again, other = (
            [world.requests for world in hunt(DropUnlikely(), tries=3, seed=seed, autoregressive=[False])]
            for seed in (1, 1, 2)
        )
        assert first == again != other


class TestWords:
    def test_appendix_a(self) -> None:
        assert _words(RetrospectiveArgmax(depth=2), appendix_a()) == (
            "row 0: when x_1 = B the policy verifies 0 of 2 drafted tokens, when x_1 = A it verifies 2 of 2, "
            "so A comes out first in row 0 with 0.85 instead of 0.70"
        )

    def test_a_drop(self) -> None:
        assert "when x_1 = B the policy verifies 0 of 1" in _words(DropUnlikely(depth=1), sampled_drop())

    def test_competing_rows_are_named_and_bystanders_are_not(self) -> None:
        assert _words(Tetris(depth=3), tetris_at_three()) == (
            "row 0, beside A A A A in row 1: given the draft A A, when x_3 = B the policy verifies 2 of 4 "
            "drafted tokens, when x_3 = A it verifies 3 of 4, so A A A is how the output begins in row 0 "
            "with 0.372 instead of 0.30"
        )

    def test_rows_that_are_only_biased_together(self) -> None:
        world = random_world(Shape(num_requests=2, vocab_size=2, horizon=3), 1)
        text = _words(EachOther(), world)
        assert text.startswith("every row alone is exact, and together they are not: ")
        assert " in row 0 and " in text
