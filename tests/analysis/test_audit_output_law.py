"""Exact output laws: the published counterexamples, the engine's own sampling, and honest policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
import torch

from dspark.analysis.audit import EXACT_RULES
from dspark.analysis.audit import output_law as module
from dspark.analysis.audit.cases import (
    FLAT,
    NAMED,
    Shape,
    appendix_a,
    random_world,
    random_worlds,
    sampled_drop,
    tetris,
    tetris_at_three,
)
from dspark.analysis.audit.drive import Drive
from dspark.analysis.audit.output_law import fingerprint, output_law, warmed_up
from dspark.analysis.audit.tables import paths
from dspark.analysis.audit.world import ToyRequest, World
from dspark.policies.base import Policy
from dspark.policies.confidence import Confidence
from dspark.policies.prefix_scheduler import PrefixScheduler
from dspark.policies.retrospective_argmax import RetrospectiveArgmax
from dspark.policies.tetris import Tetris
from dspark.types import SamplingParams
from dspark.verification import Block, Coupled, Rejection
from tests.analysis.adversaries import (
    DropUnlikely,
    EachOther,
    FullDepth,
    Learner,
    LookAhead,
    OutOfBounds,
    PeekAtQ,
    PeekAtTokens,
    StopAfterUnlikely,
    WhileConfident,
)
from tests.verification.toy_engine import PROMPT, chi_square_p_value, generate, toy_logits
from tests.verification.toy_tables import (
    block_outcomes,
    output_joint,
    token_outcomes,
    unless_likely,
)

REJECTION, BLOCK, COUPLED, GREEDY = EXACT_RULES.values()
FORGIVING = (COUPLED, GREEDY)
HONEST = (FullDepth(), Learner(), StopAfterUnlikely(), WhileConfident())
CHEATS = (DropUnlikely(), LookAhead(), PeekAtTokens(), PeekAtQ())


def first(policy: Policy, world: World, rule=REJECTION, row: int = 0) -> tuple[Fraction, ...]:
    """The law of the shown token of a row."""
    law = output_law(policy, world, rule).row(row)
    size = world.requests[row].vocab_size
    return tuple(
        sum((mass for output, mass in law.items() if output[world.shown - 1] == token), Fraction(0))
        for token in range(size)
    )


def fractions(*masses: str) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, masses))


class TestPublishedCounterexamples:
    """policies.md of the literature: DSpark's appendix A, a drop by q(x), TETRIS."""

    @pytest.mark.parametrize("rule", [REJECTION, BLOCK])
    def test_appendix_a_biases_an_arg_max_over_all_lengths(self, rule) -> None:
        assert first(RetrospectiveArgmax(depth=2), appendix_a(), rule) == fractions("0.85", "0.15")
        assert output_law(RetrospectiveArgmax(depth=2), appendix_a(), rule).bias == Fraction("0.15")

    @pytest.mark.parametrize("rule", EXACT_RULES.values())
    def test_appendix_a_does_not_bias_the_early_stop(self, rule) -> None:
        assert output_law(PrefixScheduler(depth=2), appendix_a(), rule).bias == 0

    @pytest.mark.parametrize("autoregressive", [False, True])
    def test_a_drop_by_the_drawn_probability(self, autoregressive: bool) -> None:
        policy = Confidence(depth=1, threshold=0.5, stop="before")
        world = replace(sampled_drop(), autoregressive=autoregressive)
        # every A is kept; a B is drawn again from p
        assert first(policy, world) == fractions("0.88", "0.12")
        assert Fraction("0.88") == Fraction("0.6") + Fraction("0.4") * Fraction("0.7")

    @pytest.mark.parametrize(("policy", "world"), [(Tetris(depth=1, capacity=1), tetris())])
    def test_two_requests_and_one_place(self, policy: Policy, world: World) -> None:
        rows = [first(policy, world, row=row) for row in range(2)]
        assert rows == [fractions("0.372", "0.628"), fractions("0.348", "0.652")]
        mean = tuple(sum(masses) / 2 for masses in zip(*rows, strict=True))
        assert mean == fractions("0.36", "0.64")

    def test_tetris_as_it_is_configured(self) -> None:
        rows = [first(Tetris(depth=3), tetris_at_three(), row=row) for row in range(2)]
        assert rows == [fractions("0.372", "0.628"), fractions("0.348", "0.652")]

    @pytest.mark.parametrize("rule", FORGIVING)
    @pytest.mark.parametrize("make", [make for worlds in NAMED.values() for make in worlds])
    def test_all_become_exact_where_the_target_chooses(self, rule, make) -> None:
        drop = Confidence(depth=1, threshold=0.5, stop="before")
        for policy in (RetrospectiveArgmax(depth=2), drop, Tetris(depth=1, capacity=1), Tetris(depth=3)):
            assert output_law(policy, make(), rule).bias == 0

    @pytest.mark.parametrize("make", [make for worlds in NAMED.values() for make in worlds])
    def test_all_become_exact_where_drafts_are_no_samples(self, make) -> None:
        world = replace(make(), deterministic=True)
        drop = Confidence(depth=1, threshold=0.7, stop="before")
        for policy in (RetrospectiveArgmax(depth=2), drop, Tetris(depth=1, capacity=1)):
            assert output_law(policy, world, REJECTION).bias == 0


class TestPolicies:
    @pytest.mark.parametrize("policy", HONEST, ids=lambda policy: type(policy).__name__)
    @pytest.mark.parametrize("name", EXACT_RULES)
    def test_honest_policies_are_exact_everywhere(self, policy: Policy, name: str) -> None:
        shapes = (
            Shape(num_requests=1, vocab_size=2, horizon=4),
            Shape(num_requests=2, vocab_size=2, horizon=3),
            Shape(num_requests=1, vocab_size=3, horizon=3, num_bystanders=2),
        )
        for number, shape in enumerate(shapes):
            world = replace(
                random_world(shape, number), warm_up_steps=3 * number, autoregressive=bool(number)
            )
            assert output_law(policy, world, EXACT_RULES[name]).bias == 0

    @pytest.mark.parametrize("policy", CHEATS, ids=lambda policy: type(policy).__name__)
    def test_cheats_are_biased_under_sampling_and_nowhere_else(self, policy: Policy) -> None:
        worlds = [random_world(Shape(num_requests=1, vocab_size=2, horizon=3), seed) for seed in range(4)]
        for rule in (REJECTION, BLOCK):
            assert max(output_law(policy, world, rule).bias for world in worlds) > Fraction(1, 50)
        for rule in FORGIVING:
            assert all(output_law(policy, world, rule).bias == 0 for world in worlds)

    def test_rows_that_decide_about_each_other_are_only_biased_together(self) -> None:
        world = random_world(Shape(num_requests=2, vocab_size=2, horizon=3), 1)
        law = output_law(EachOther(), world, REJECTION)
        assert all(law.row(row) == law.wanted_row(row) for row in range(2))
        assert law.bias > 0

    def test_an_answer_that_is_no_depth_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"OutOfBounds.trim must stay in \[0, "):
            output_law(OutOfBounds(), appendix_a(), REJECTION)


class TestEnumeration:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Once(DropUnlikely):
        """Drafts in the first step only."""

        def plan(self, ctx, state):
            return torch.full_like(ctx.slots, self.depth if ctx.step == 0 else 0)

    @pytest.mark.parametrize(("rule", "outcomes"), [(REJECTION, token_outcomes), (BLOCK, block_outcomes)])
    @pytest.mark.parametrize("seed", range(3))
    def test_one_round_then_plain_decoding_is_as_enumerated_by_hand(self, rule, outcomes, seed: int) -> None:
        """Also where it is biased: the same drafts, cut before the first unlikely token."""
        world = random_world(Shape(num_requests=1, vocab_size=3, horizon=4), seed)
        request = world.requests[0]

        def cut(path, draft):
            length = 0
            while length < len(path) and not unless_likely(path[: length + 1], draft[path[:length]]):
                length += 1
            return [(length, Fraction(1))]

        by_hand = output_joint(outcomes, request.target, request.drafter, 3, trim=cut)
        assert output_law(self.Once(), world, rule).row(0) == by_hand

    @pytest.mark.parametrize("rule", [Rejection(), Block(), Coupled()], ids=lambda rule: rule.name)
    def test_the_biased_law_is_what_the_verification_code_samples(self, rule) -> None:
        """Thousands of requests through dspark.verification, against the enumeration of the same models."""
        logits = [toy_logits(1, 2), toy_logits(2, 2, spread=1.0)]
        target, drafter = ({path: _exact_law(table, path) for path in paths(2, 4)} for table in logits)
        request = ToyRequest(target=target, drafter=drafter, confidence=dict.fromkeys(target, Fraction(1)))
        # that engine drafts two tokens whatever remains; the first three of five tokens never see a clamp
        world = World(name="toy engine", requests=(request,), horizon=5, cost=FLAT)
        law = output_law(PeekAtTokens(depth=2), world, EXACT_RULES[rule.name])

        def trim(draft):
            return torch.minimum(draft.lengths, (draft.tokens % 2 == 0).long().cumprod(1).sum(1))

        run = generate(
            rule,
            *logits,
            SamplingParams(temperature=1.0),
            num_rows=6000,
            num_new=3,
            seed=5,
            ragged=False,
            trim=trim,
            max_depth=2,
        )
        joint, wanted = (
            {o: float(m) for o, m in laws.items()} for laws in (law.row(0, 3), law.wanted_row(0, 3))
        )
        assert chi_square_p_value(run.tokens, joint) > 1e-4
        assert (chi_square_p_value(run.tokens, wanted) > 1e-4) is (rule.name == "coupled")

    @pytest.mark.parametrize("rule", [REJECTION, COUPLED])
    def test_following_equal_situations_as_one_changes_nothing(self, rule, monkeypatch) -> None:
        world = random_world(Shape(num_requests=1, vocab_size=2, horizon=4), 3)
        merged = output_law(Learner(start=2), world, rule)
        monkeypatch.setattr(module, "_key", lambda situation: object())
        apart = output_law(Learner(start=2), world, rule)
        assert apart.joint == merged.joint
        assert len(apart.visited) > len(merged.visited)

    def test_joint_laws_have_mass_one(self) -> None:
        for world in random_worlds(3, 0):
            law = output_law(DropUnlikely(), world, REJECTION)
            assert sum(law.joint.values()) == sum(law.target.values()) == 1


class TestWarmUp:
    def test_a_history_is_the_past_of_the_same_rows(self) -> None:
        world = replace(random_world(Shape(num_requests=2, vocab_size=2, horizon=3), 0), warm_up_steps=7)
        start = warmed_up(Drive(Learner(), world, REJECTION))
        assert start.step == 7
        assert start.outputs == ((), ())
        assert all(7 <= past <= 21 for past in start.past)  # one to three tokens a step
        assert int(start.state.max()) > 0

    def test_policies_without_a_memory_need_none(self) -> None:
        world = replace(appendix_a(), warm_up_steps=7)
        assert warmed_up(Drive(FullDepth(), world, REJECTION)).step == 0


class TestFingerprint:
    @dataclass(frozen=True)
    class State:
        values: torch.Tensor
        names: dict[str, int]

    def test_equal_states_are_equal(self) -> None:
        for _ in range(2):
            a, b = (
                fingerprint([self.State(torch.tensor([1.0, torch.nan]), {"a": 1}), None, (2, "x")])
                for _ in range(2)
            )
            assert a == b
            assert hash(a) == hash(b)

    @pytest.mark.parametrize(
        ("a", "b"),
        [
            (torch.tensor([1]), torch.tensor([2])),
            (torch.tensor([1]), torch.tensor([[1]])),
            (torch.tensor([1]), torch.tensor([1.0])),
            (State(torch.tensor([1]), {"a": 1}), State(torch.tensor([1]), {"a": 2})),
            (1, True),
            ((1,), (1, 1)),
            (object(), object()),
            ({1}, {1}),  # cannot be hashed
        ],
    )
    def test_unlike_states_are_not(self, a, b) -> None:
        assert fingerprint(a) != fingerprint(b)

    @pytest.mark.parametrize("thing", [object(), {1, 2}])
    def test_an_object_of_another_kind_equals_itself(self, thing) -> None:
        assert fingerprint(thing) == fingerprint(thing)


def _exact_law(table: torch.Tensor, path: tuple[int, ...]) -> tuple[Fraction, ...]:
    """The law after the prompt and ``path``, as fractions that add up to 1."""
    last = (*PROMPT, *path)[-2:]
    masses = [Fraction(float(x)) for x in table[last].double().softmax(-1)]
    return tuple(mass / sum(masses) for mass in masses)
