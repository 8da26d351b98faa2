"""The step's layout: which logits, drafts and tokens belong to a row."""

from __future__ import annotations

import pytest
import torch

from dspark.types import NO_TOKEN, Draft, SamplingParams
from dspark.verification import SampledRow
from dspark.verification.step import Step

PLAIN = SamplingParams(temperature=1.0)
PENALISED = SamplingParams(temperature=1.0, repetition_penalty=2.0)


def _step(params: SamplingParams = PLAIN) -> Step:
    """Four rows of verify lengths 2, 0, 1, 0, the last without a draft; logits m hold the number m + 1."""
    rows = [SampledRow(params=params, tokens=[i], num_prompt=1, eos_token_ids=(), seed=i) for i in range(4)]
    draft = Draft(
        tokens=torch.tensor([[5, 6, 7], [5, NO_TOKEN, NO_TOKEN], [8, 9, NO_TOKEN]]),
        lengths=torch.tensor([3, 1, 2]),
        q=torch.zeros(3, 3, 10),
    )
    logits = torch.arange(1.0, 8.0)[:, None].expand(7, 10)
    return Step.of(rows, draft, torch.tensor([2, 0, 1, 0]), logits)


def test_rows_lie_one_after_the_other() -> None:
    step = _step()
    assert step.first.tolist() == [0, 3, 4, 6]
    assert step.tokens.tolist() == [[5, 6], [5, NO_TOKEN], [8, 9], [NO_TOKEN, NO_TOKEN]]
    assert step.q_rows[:3].tolist() == [0, 1, 2]
    assert step.adjusted() is step.logits


def test_some_rows_in_an_order_of_their_own() -> None:
    some = _step().select([2, 3, 0])
    assert [row.seed for row in some.rows] == [2, 3, 0]
    assert some.first.tolist() == [0, 2, 3]
    assert some.lengths.tolist() == [1, 0, 2]
    assert some.logits[:, 0].tolist() == [5, 6, 7, 1, 2, 3]
    assert some.tokens[:, 0].tolist() == [8, NO_TOKEN, 5]
    assert some.q_rows[[0, 2]].tolist() == [2, 0]


def test_penalties_see_the_committed_tokens_and_the_drafts_before_a_position() -> None:
    """The penalty 2 halves the positive logits of tokens seen."""
    step = _step(PENALISED)
    halved = [(step.adjusted()[m] < step.logits[m]).nonzero().flatten().tolist() for m in range(7)]
    assert halved == [[0], [0, 5], [0, 5, 6], [1], [2], [2, 8], [3]]
    logits, positions = step.at_depth(torch.tensor([2, 0]), torch.tensor([1, 2]))
    assert torch.equal(logits, step.adjusted()[[5, 2]])
    assert [list(at.drafted) for at in positions] == [[8], [5, 6]]


def test_a_verify_length_without_a_draft_is_caught() -> None:
    row = SampledRow(params=PLAIN, tokens=[1], num_prompt=1, eos_token_ids=(), seed=0)
    with pytest.raises(AssertionError, match="a row without a draft"):
        Step.of([row], None, torch.tensor([1]), torch.zeros(2, 3))
