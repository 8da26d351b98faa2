"""A row's verdict is its own: the same in any batch, whatever its neighbours do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from dspark.sampling import Position, adjust
from dspark.types import NO_TOKEN, Draft, SamplingParams
from dspark.verification import (
    Block,
    Coupled,
    Greedy,
    Rejection,
    SampledRow,
    SyntheticAcceptance,
    Verification,
    draws,
)
from tests.verification.mixed_batches import ALL_PARAMS, GREEDY, Batch, mixed_batch

LOSSLESS = [Rejection(), Block(), Coupled()]
BY_NAME = pytest.mark.parametrize("rule", LOSSLESS, ids=[rule.name for rule in LOSSLESS])
ALL_RULES = [*LOSSLESS, SyntheticAcceptance((0.9, 0.6, 0.5))]
ALL_BY_NAME = pytest.mark.parametrize("rule", ALL_RULES, ids=[rule.name for rule in ALL_RULES])


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Large sums may be split between threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _outcomes(batch: Batch, rule: Verification) -> list[tuple[int, int]]:
    verdict = batch.verify(rule)
    return list(zip(verdict.accepted.tolist(), verdict.next_token.tolist(), strict=True))


class TestRowsAreIndependent:
    @ALL_BY_NAME
    @pytest.mark.parametrize("seed", range(3))
    def test_each_row_equals_its_solo_run(self, rule: Verification, seed: int) -> None:
        batch = mixed_batch(rule, seed=seed)
        together = _outcomes(batch, rule)
        assert any(accepted for accepted, _ in together), "nothing was accepted, the test shows nothing"
        assert together == [_outcomes(batch.take([i]), rule)[0] for i in range(len(batch.rows))]

    @ALL_BY_NAME
    def test_order_and_company_do_not_matter(self, rule: Verification) -> None:
        batch = mixed_batch(rule)
        together = _outcomes(batch, rule)
        shuffled = [i for i in reversed(range(21)) if i % 4] + [22, 21]
        assert _outcomes(batch.take(shuffled), rule) == [together[i] for i in shuffled]

    @ALL_BY_NAME
    @pytest.mark.usefixtures("two_threads")
    def test_with_a_real_vocabulary(self, rule: Verification) -> None:
        batch = mixed_batch(rule, vocab_size=49_152, num_rows=12, noise=0.05)
        together = _outcomes(batch, rule)
        assert together == [_outcomes(batch.take([i]), rule)[0] for i in range(len(batch.rows))]

    @ALL_BY_NAME
    def test_arguments_are_left_alone(self, rule: Verification) -> None:
        batch = mixed_batch(rule)
        tensors = [batch.logits, batch.draft.tokens, batch.draft.lengths, batch.verify_lengths]
        tensors += [] if batch.draft.q is None else [batch.draft.q]
        before = [x.clone() for x in tensors]
        tokens = [list(row.tokens) for row in batch.rows]
        first = _outcomes(batch, rule)
        for old, new in zip(before, tensors, strict=True):
            assert torch.equal(old.nan_to_num(), new.nan_to_num())
        assert tokens == [list(row.tokens) for row in batch.rows]
        assert _outcomes(batch, rule) == first


class TestGreedyRows:
    @BY_NAME
    def test_follow_the_arg_max_of_the_adjusted_logits(self, rule: Verification) -> None:
        batch = mixed_batch(rule, seed=5)
        outcomes = _outcomes(batch, rule)
        checked = 0
        for i, row in enumerate(batch.rows):
            if row.is_greedy:
                assert outcomes[i] == _greedy_reference(batch.take([i]))
                checked += 1
        assert checked == 8

    @BY_NAME
    def test_use_no_random_number(self, rule: Verification, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*args: object) -> Tensor:
            raise AssertionError("a greedy row asked for a random number")

        monkeypatch.setattr(draws, "uniform", refuse)
        monkeypatch.setattr(draws, "exponential_race", refuse)
        batch = mixed_batch(rule, params=(ALL_PARAMS[0], ALL_PARAMS[2]))
        assert batch.draft.q is None
        assert _outcomes(batch, rule) == [_greedy_reference(batch.take([i])) for i in range(len(batch.rows))]

    @BY_NAME
    def test_equal_those_of_greedy_verification(self, rule: Verification) -> None:
        batch = mixed_batch(Greedy(), params=(ALL_PARAMS[0], ALL_PARAMS[2]))
        assert _outcomes(batch, rule) == _outcomes(batch, Greedy())


def _greedy_reference(batch: Batch) -> tuple[int, int]:
    """Accepted drafts and next token of a lone row, token by token."""
    (row,) = batch.rows
    accepted: list[int] = []
    for k in range(int(batch.verify_lengths[0]) + 1):
        position = Position(
            params=row.params,
            prefix=row.tokens,
            drafted=accepted,
            num_prompt=row.num_prompt,
            eos_token_ids=row.eos_token_ids,
        )
        choice = int(adjust(batch.logits[k : k + 1], [position]).argmax())
        if k == batch.verify_lengths[0] or choice != batch.draft.tokens[0, k]:
            return k, choice
        accepted.append(choice)
    raise AssertionError("a row of length l has l + 1 positions")


class TestExtremes:
    @BY_NAME
    def test_no_draft_at_all(self, rule: Verification) -> None:
        """``draft=None`` and a draft of zero tokens are both plain decoding."""
        batch = mixed_batch(rule, depth=0)
        none = rule.verify(batch.rows, None, batch.verify_lengths, batch.logits)
        assert none.accepted.tolist() == [0] * 24
        assert torch.equal(none.next_token, batch.verify(rule).next_token)
        deep = mixed_batch(rule, depth=2)
        nothing = torch.zeros_like(deep.verify_lengths)
        untouched = rule.verify(deep.rows, deep.draft, nothing, batch.logits)
        assert torch.equal(
            untouched.next_token, rule.verify(deep.rows, None, nothing, batch.logits).next_token
        )

    @BY_NAME
    @pytest.mark.parametrize("with_q", [False, True])
    def test_an_always_wrong_drafter_gives_the_plain_output(self, rule: Verification, with_q: bool) -> None:
        """Drafts the target cannot emit: none is accepted, and the token is plain decoding's, bitwise."""
        batch = mixed_batch(rule, num_undrafted=0, depth=2)
        wrong = 7
        logits = torch.randn(3 * len(batch.rows), 50, generator=torch.Generator().manual_seed(1))
        logits[:, wrong] = -torch.inf
        count = len(batch.rows)
        q = torch.zeros(count, 2, 50)
        q[:, :, wrong] = 1
        draft = Draft(
            tokens=torch.full((count, 2), wrong),
            lengths=torch.full((count,), 2),
            q=q if with_q else None,
        )
        verdict = rule.verify(batch.rows, draft, draft.lengths, logits)
        plain = rule.verify(batch.rows, None, torch.zeros_like(draft.lengths), logits[::3])
        assert verdict.accepted.tolist() == [0] * count
        assert torch.equal(verdict.next_token, plain.next_token)

    @BY_NAME
    @pytest.mark.parametrize("vocab_size", [50, 5000])
    def test_the_target_as_its_own_drafter_is_accepted_whole(
        self, rule: Verification, vocab_size: int
    ) -> None:
        for seed in range(5):
            batch = mixed_batch(rule, noise=0.0, vocab_size=vocab_size, seed=seed)
            assert torch.equal(batch.verify(rule).accepted, batch.verify_lengths)

    @BY_NAME
    def test_an_empty_batch(self, rule: Verification) -> None:
        verdict = rule.verify([], None, torch.zeros(0, dtype=torch.int64), torch.zeros(0, 5))
        assert verdict.accepted.shape == verdict.next_token.shape == (0,)

    @BY_NAME
    def test_trimmed_drafts_are_not_looked_at(self, rule: Verification) -> None:
        """What lies past the verify length may be anything."""
        batch = mixed_batch(rule, seed=3)
        past = torch.arange(3) >= batch.verify_lengths[: len(batch.draft.tokens), None]
        draft = Draft(
            tokens=torch.where(past, NO_TOKEN, batch.draft.tokens),
            lengths=batch.draft.lengths,
            q=None if batch.draft.q is None else batch.draft.q.masked_fill(past[:, :, None], torch.nan),
        )
        scrubbed = Batch(
            rows=batch.rows, draft=draft, verify_lengths=batch.verify_lengths, logits=batch.logits
        )
        assert (batch.verify_lengths[: len(draft.lengths)] < batch.draft.lengths).any()
        assert _outcomes(scrubbed, rule) == _outcomes(batch, rule)

    @BY_NAME
    @pytest.mark.parametrize(
        "params", [GREEDY, SamplingParams(temperature=1.0, top_k=1)], ids=["greedy", "top_1"]
    )
    def test_no_more_is_accepted_than_was_verified(self, rule: Verification, params: SamplingParams) -> None:
        """Every draft is right, also those that were cut."""
        lengths = torch.tensor([2, 0, 3, 1, 0])
        rows = [
            SampledRow(params=params, tokens=[5, i], num_prompt=2, eos_token_ids=(), seed=i) for i in range(5)
        ]
        logits = torch.zeros(int(lengths.sum()) + 5, 9)
        logits[:, 4] = 10
        draft = Draft(tokens=torch.full((4, 3), 4), lengths=torch.full((4,), 3), q=None)
        verdict = rule.verify(rows, draft, lengths, logits)
        assert verdict.accepted.tolist() == lengths.tolist()
        assert verdict.next_token.tolist() == [4] * 5

    def test_logits_that_do_not_fit_the_lengths_are_caught(self) -> None:
        row = SampledRow(params=GREEDY, tokens=[1], num_prompt=1, eos_token_ids=(), seed=0)
        with pytest.raises(AssertionError, match="2 logits for 1 positions"):
            Greedy().verify([row], None, torch.tensor([0]), torch.zeros(2, 5))


@pytest.mark.parametrize("num_rows", [1, 5])
def test_plain_greedy_decoding_takes_the_short_way_to_the_same_verdict(num_rows):
    """Without a draft nothing is laid out; the long way is that of a step whose drafts were all dropped."""
    logits = torch.randn(num_rows, 40, generator=torch.Generator().manual_seed(num_rows))
    rows = [
        SampledRow(params=GREEDY, tokens=[1, 2, 3], num_prompt=2, eos_token_ids=(0,), seed=i)
        for i in range(num_rows)
    ]
    none = torch.zeros(num_rows, dtype=torch.int64)
    dropped = Draft(tokens=torch.full((num_rows, 1), 7), lengths=none + 1, signals={}, q=None)
    for rule in LOSSLESS:
        short, long = rule.verify(rows, None, none, logits), rule.verify(rows, dropped, none, logits)
        assert torch.equal(short.accepted, long.accepted)
        assert torch.equal(short.next_token, long.next_token)
    with pytest.raises(AssertionError, match="logits for . positions"):
        Rejection().verify(rows, None, none + 1, logits.repeat(2, 1))
