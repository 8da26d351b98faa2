"""What a policy meets in a toy world is what it meets in the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
import torch

from dspark.analysis.audit import EXACT_RULES
from dspark.analysis.audit.cases import FLAT, Shape, appendix_a, random_world
from dspark.analysis.audit.drive import NUM_PROMPT, Drive, every
from dspark.analysis.audit.tables import constant_table, paths
from dspark.analysis.audit.world import ToyRequest, World
from dspark.types import NO_TOKEN, Draft, SamplingParams, Signal, StepContext, Verdict
from dspark.verification import SampledRow
from dspark.verification.divergence import divergence
from tests.analysis.adversaries import FullDepth, StopAfterUnlikely

REJECTION = EXACT_RULES["rejection"]
EVERY_SIGNAL = frozenset(Signal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the hooks were called with."""

    contexts: list[StepContext]
    drafts: list[Draft]
    signals: list[dict[Signal, torch.Tensor]]
    verdicts: list[Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noting(FullDepth):
    """Notes what it meets, and goes on."""

    seen: Seen
    wanted: frozenset[Signal] = EVERY_SIGNAL

    @property
    def needs(self):
        return self.wanted

    def plan(self, ctx, state):
        self.seen.contexts.append(ctx)
        return torch.full_like(ctx.slots, self.depth)

    def proceed(self, ctx, k, signals, state):
        self.seen.signals.append(signals)
        return torch.ones_like(ctx.slots, dtype=torch.bool)

    def trim(self, ctx, draft, state):
        self.seen.drafts.append(draft)
        return draft.lengths

    def observe(self, ctx, verdict, state):
        self.seen.verdicts.append(verdict)
        return state


def _noting(**settings) -> Noting:
    return Noting(seen=Seen(contexts=[], drafts=[], signals=[], verdicts=[]), **settings)


def _request(p, q, depth: int = 3) -> ToyRequest:
    confidence = {path: Fraction(1, 2 + len(path)) for path in paths(len(p), depth)}
    return ToyRequest(
        target=constant_table(p, depth), drafter=constant_table(q, depth), confidence=confidence
    )


P, Q = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)), (Fraction(1, 8), Fraction(5, 8), Fraction(1, 4))
WORLD = World(name="one", requests=(_request(P, Q),), horizon=4, cost=FLAT, autoregressive=True)


class TestDraft:
    def test_depths_are_clamped_as_in_the_engine(self) -> None:
        """Of four tokens to emit, three can be drafted: the last one comes free."""
        policy = _noting(depth=7)
        decided = list(Drive(policy, WORLD, REJECTION).decide(Drive(policy, WORLD, REJECTION).begin()))
        assert {len(each.drafts[0]) for each in decided} == {3}
        assert len(decided) == 27
        assert sum(each.weight for each in decided) == 1

    def test_signals_are_those_of_a_draft_model(self) -> None:
        policy = _noting(depth=2)
        drive = Drive(policy, WORLD, REJECTION)
        decided = next(each for each in drive.decide(drive.begin()) if each.drafts == ((1, 0),))
        signals = decided.record.signals
        assert set(signals) == EVERY_SIGNAL - {Signal.DIVERGENCE}
        entropy = -sum(float(q) * math.log(q) for q in Q)
        assert signals[Signal.TOKEN_PROBABILITY].tolist() == [pytest.approx([5 / 8, 1 / 8])]
        assert signals[Signal.TOP1_PROBABILITY].tolist() == [pytest.approx([5 / 8, 5 / 8])]
        assert signals[Signal.ENTROPY].tolist() == [pytest.approx([entropy, entropy])]
        assert signals[Signal.MARGIN].tolist() == [pytest.approx([math.log(5 / 2)] * 2)]
        assert signals[Signal.CONFIDENCE].tolist() == [pytest.approx([1 / 2, 1 / 3])]
        assert decided.record.q[0].tolist() == [pytest.approx(list(map(float, Q)))] * 2
        assert all(values.dtype == torch.float32 for values in signals.values())

    def test_only_signals_in_need_are_given(self) -> None:
        policy = _noting(depth=2, wanted=frozenset({Signal.ENTROPY}))
        drive = Drive(policy, WORLD, REJECTION)
        assert set(next(drive.decide(drive.begin())).record.signals) == {Signal.ENTROPY}

    def test_a_token_of_probability_zero_leaves_signals_finite(self) -> None:
        certain = (Fraction(0), Fraction(1))
        world = replace(WORLD, requests=(_request(certain, certain),))
        drive = Drive(_noting(depth=1), world, REJECTION)
        (decided,) = drive.decide(drive.begin())
        assert all(bool(values.isfinite().all()) for values in decided.record.signals.values())

    def test_stopped_rows_are_padded(self) -> None:
        """The first request stops after its unlikely token, the second one goes on."""
        world = replace(
            WORLD, requests=(_request(P, Q), _request(P, (Fraction(0), Fraction(1), Fraction(0))))
        )
        drive = Drive(StopAfterUnlikely(depth=2), world, REJECTION)
        decided = next(each for each in drive.decide(drive.begin()) if each.drafts[0][0] == 0)
        assert decided.drafts == ((0,), (1, 1))
        assert decided.record.tokens.tolist() == [[0, NO_TOKEN], [1, 1]]
        assert decided.record.lengths.tolist() == [1, 2]
        assert bool(decided.record.signals[Signal.TOKEN_PROBABILITY][0, 1].isnan())
        assert decided.lengths == (1, 2)

    def test_proceed_sees_the_positions_so_far(self) -> None:
        policy = _noting(depth=3)
        drive = Drive(policy, WORLD, REJECTION)
        list(drive.decide(drive.begin()))
        widths = [signals[Signal.ENTROPY].shape for signals in policy.seen.signals]
        assert sorted(set(widths)) == [(1, 1), (1, 2)]  # nothing is asked after the deepest allowed token

    def test_a_block_drafter_does_not_ask(self) -> None:
        policy = _noting(depth=3)
        drive = Drive(policy, replace(WORLD, autoregressive=False), REJECTION)
        list(drive.decide(drive.begin()))
        assert policy.seen.signals == []

    @pytest.mark.parametrize("name", ["coupled", "greedy"])
    def test_rules_that_compare_tokens_tell_no_q(self, name: str) -> None:
        drive = Drive(_noting(depth=1), WORLD, EXACT_RULES[name])
        assert all(each.record.q is None for each in drive.decide(drive.begin()))

    def test_a_deterministic_drafter_draws_its_arg_max_and_tells_no_q(self) -> None:
        drive = Drive(_noting(depth=2), replace(WORLD, deterministic=True), REJECTION)
        (decided,) = drive.decide(drive.begin())
        assert decided.drafts == ((1, 1),)
        assert decided.record.q is None

    def test_depth_zero_makes_no_draft(self) -> None:
        policy = _noting(depth=0)
        drive = Drive(policy, WORLD, REJECTION)
        (decided,) = drive.decide(drive.begin())
        assert decided.record is None
        assert policy.seen.drafts == []
        assert sum(weight for _, weight in drive.step(drive.begin())) == 1


class TestContextAndVerdict:
    def test_contexts_follow_the_rows(self) -> None:
        policy = _noting(depth=2)
        drive = Drive(policy, replace(WORLD, requests=WORLD.requests * 2), REJECTION)
        begin = drive.begin()
        list(drive.decide(begin))
        ctx = policy.seen.contexts[-1]
        assert (ctx.step, ctx.num_rows, ctx.num_slots) == (0, 2, 2)
        assert ctx.is_new.tolist() == [True, True]
        assert ctx.context_lengths.tolist() == [NUM_PROMPT] * 2
        assert ctx.remaining_tokens.tolist() == [4, 4]
        assert ctx.cost is WORLD.cost
        list(drive.decide(replace(begin, outputs=((0, 1, 2, 0), (1,)), past=(5, 6), step=3)))
        ctx = policy.seen.contexts[-1]
        assert (ctx.step, ctx.num_rows, ctx.num_slots) == (3, 1, 2)
        assert ctx.slots.tolist() == [1]
        assert ctx.is_new.tolist() == [False]
        assert ctx.context_lengths.tolist() == [NUM_PROMPT + 6 + 1]
        assert ctx.remaining_tokens.tolist() == [3]

    def test_a_verdict_tells_what_the_engine_tells(self) -> None:
        policy = _noting(depth=1)
        drive = Drive(policy, appendix_a(), REJECTION)
        after = list(drive.step(drive.begin()))
        assert len(policy.seen.verdicts) == len(after)
        for verdict in policy.seen.verdicts:
            assert verdict.verify_lengths.tolist() == [1]
            assert verdict.draft is not None
            assert verdict.step_time_s == pytest.approx(2.0)  # two tokens at 0.5 steps a second

    def test_the_state_after_the_last_token_is_not_asked_for(self) -> None:
        policy = _noting(depth=1)
        drive = Drive(policy, WORLD, REJECTION)
        last = replace(drive.begin(), outputs=((0, 0, 0),))
        assert all(drive.is_over(after) for after, _ in drive.step(last))
        assert policy.seen.verdicts == []

    @pytest.mark.parametrize("name", ["rejection", "coupled"])
    def test_divergence_is_the_verifications(self, name: str) -> None:
        world = random_world(Shape(num_requests=2, vocab_size=3, horizon=4), 0)
        policy = _noting(depth=2)
        drive = Drive(policy, world, EXACT_RULES[name])
        next(iter(drive.step(drive.begin(), lambda chances: every(chances)[:1])))
        verdict = policy.seen.verdicts[0]
        rows, logits = [], []
        for i, request in enumerate(world.requests):
            rows.append(
                SampledRow(params=SamplingParams(), tokens=[0], num_prompt=1, eos_token_ids=(), seed=0)
            )
            drafts = tuple(verdict.draft.tokens[i].tolist())
            logits += [[math.log(p) for p in request.target[drafts[:k]]] for k in range(3)]
        expected = divergence(rows, verdict.draft, verdict.verify_lengths, torch.tensor(logits))
        assert torch.allclose(verdict.divergence, expected, atol=1e-6)
