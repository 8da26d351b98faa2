"""Synthetic acceptance: the given rates are met, and nothing is claimed."""

from __future__ import annotations

import pytest
import torch

from dspark.types import NO_TOKEN, Draft, SamplingParams, Signal
from dspark.verification import Rejection, SampledRow, SyntheticAcceptance
from tests.verification.mixed_batches import ALL_PARAMS, mixed_batch

RATES = (0.8, 0.5, 0.9)
NUM_ROWS = 20_000


def _rows(params: SamplingParams, num_rows: int = NUM_ROWS) -> list[SampledRow]:
    return [
        SampledRow(params=params, tokens=[0, 0], num_prompt=2, eos_token_ids=(), seed=i)
        for i in range(num_rows)
    ]


def _draft(num_rows: int, lengths: torch.Tensor, **signals: torch.Tensor) -> Draft:
    tokens = torch.full((num_rows, 3), 1).masked_fill(torch.arange(3) >= lengths[:, None], NO_TOKEN)
    named = {Signal(name): values for name, values in signals.items()}
    return Draft(tokens=tokens, lengths=lengths, q=None, signals=named)


def _assert_rates(accepted: torch.Tensor, verified: torch.Tensor, rates: tuple[float, ...]) -> None:
    """Conditional acceptance at each depth, within four standard errors."""
    for k, rate in enumerate(rates):
        tried = (accepted >= k) & (verified > k)
        passed = float((accepted[tried] > k).double().mean())
        assert abs(passed - rate) < 4 * (rate * (1 - rate) / int(tried.sum())) ** 0.5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rates_are_met_at_any_temperature(temperature: float) -> None:
    lengths = torch.arange(NUM_ROWS) % 4
    logits = torch.zeros(int((lengths + 1).sum()), 3)
    verdict = SyntheticAcceptance(RATES).verify(
        _rows(SamplingParams(temperature=temperature)), _draft(NUM_ROWS, lengths), lengths, logits
    )
    assert (verdict.accepted <= lengths).all()
    _assert_rates(verdict.accepted, lengths, RATES)


def test_without_rates_the_confidence_is_the_rate() -> None:
    lengths = torch.full((NUM_ROWS,), 3)
    confidence = torch.tensor(RATES).expand(NUM_ROWS, 3)
    verdict = SyntheticAcceptance(None).verify(
        _rows(SamplingParams()),
        _draft(NUM_ROWS, lengths, confidence=confidence),
        lengths,
        torch.zeros(4 * NUM_ROWS, 3),
    )
    _assert_rates(verdict.accepted, lengths, RATES)


def test_each_row_has_its_own_confidence() -> None:
    confidence = torch.tensor(
        [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, torch.nan, torch.nan]]
    )
    lengths = torch.tensor([3, 3, 2, 1])
    verdict = SyntheticAcceptance(None).verify(
        _rows(SamplingParams(), 6),
        _draft(4, lengths, confidence=confidence),
        torch.tensor([3, 3, 2, 1, 0, 0]),
        torch.zeros(15, 3),
    )
    assert verdict.accepted.tolist() == [2, 0, 2, 1, 0, 0]


def test_the_next_token_is_the_plain_choice_after_the_accepted_drafts() -> None:
    """With rates 0 that is plain decoding; with rates 1 the choice at the last position."""
    rule = SyntheticAcceptance((0.0, 0.0, 0.0))
    batch = mixed_batch(rule, params=ALL_PARAMS)
    sizes = batch.verify_lengths + 1
    first = sizes.cumsum(0) - sizes
    none = torch.zeros_like(sizes)
    plain = Rejection().verify(batch.rows, None, none, batch.logits[first])
    assert torch.equal(batch.verify(rule).next_token, plain.next_token)
    whole = batch.verify(SyntheticAcceptance((1.0, 1.0, 1.0)))
    assert torch.equal(whole.accepted, batch.verify_lengths)
    greedy = [i for i, row in enumerate(batch.rows) if i % len(ALL_PARAMS) == 0]
    assert whole.next_token[greedy].tolist() == batch.logits[first + sizes - 1][greedy].argmax(-1).tolist()


def test_it_claims_nothing() -> None:
    assert not SyntheticAcceptance(RATES).lossless
    assert SyntheticAcceptance(RATES).needs == frozenset()
    assert SyntheticAcceptance(None).needs == {Signal.CONFIDENCE}
    assert not SyntheticAcceptance(RATES).draft_sampler(_rows(SamplingParams(temperature=1.0), 1)).needs_q


class TestErrors:
    @pytest.mark.parametrize(
        ("rates", "message"),
        [
            ((), "empty list of rates"),
            ((0.5, 1.5), r"in \[0, 1\], got 1\.5 at depth 2"),
            ((-0.1,), r"got -0\.1 at depth 1"),
            ((float("nan"),), "got nan at depth 1"),
        ],
    )
    def test_impossible_rates(self, rates: tuple[float, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            SyntheticAcceptance(rates)

    def test_fewer_rates_than_depths(self) -> None:
        SyntheticAcceptance(RATES).check_depth(3)
        SyntheticAcceptance(None).check_depth(30)
        with pytest.raises(ValueError, match="3 rates, but drafts reach depth 4"):
            SyntheticAcceptance(RATES).check_depth(4)
        with pytest.raises(ValueError, match="2 rates, but drafts reach depth 3"):
            SyntheticAcceptance((0.5, 0.5)).verify(
                _rows(SamplingParams(), 1), _draft(1, torch.tensor([3])), torch.tensor([3]), torch.zeros(4, 3)
            )

    def test_a_drafter_without_confidence(self) -> None:
        with pytest.raises(
            ValueError, match=r"'confidence', which this drafter does not give \(it gives none\)"
        ):
            SyntheticAcceptance(None).verify(
                _rows(SamplingParams(), 1), _draft(1, torch.tensor([3])), torch.tensor([3]), torch.zeros(4, 3)
            )
