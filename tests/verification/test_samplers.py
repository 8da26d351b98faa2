"""Draft samplers: q is what was sampled from, and a draw depends on its own row and round alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dspark.sampling import Position, adjust, distribution, inverse_cdf
from dspark.seeding import Purpose, uniform
from dspark.types import SamplingParams
from dspark.verification import Block, Coupled, Rejection, SampledRow, SyntheticAcceptance, Verification
from tests.verification.mixed_batches import ALL_PARAMS, GREEDY

HOT = SamplingParams(temperature=1.0)


def _rows(params: tuple[SamplingParams, ...], num_rows: int) -> list[SampledRow]:
    return [
        SampledRow(
            params=params[i % len(params)],
            tokens=[i % 5, 3, i % 7][: 2 + i % 2],
            num_prompt=2,
            eos_token_ids=(1,),
            seed=50 + i,
        )
        for i in range(num_rows)
    ]


def _logits(num_rows: int) -> Tensor:
    return torch.randn(num_rows, 40, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("rule", [Rejection(), Block()], ids=["rejection", "block"])
def test_q_is_the_law_that_was_drawn_from(rule: Verification) -> None:
    rows, logits = _rows(ALL_PARAMS, 30), _logits(30)
    drafted = torch.randint(40, (30, 2), generator=torch.Generator().manual_seed(1))
    sampler = rule.draft_sampler(rows)
    assert sampler.needs_q
    tokens, q = sampler.draw(torch.arange(30), 3, logits, drafted)
    assert q is not None
    for i, row in enumerate(rows):
        position = Position(
            params=row.params,
            prefix=row.tokens,
            drafted=drafted[i].tolist(),
            num_prompt=2,
            eos_token_ids=(1,),
        )
        law = distribution(adjust(logits[i : i + 1], [position]), [position])
        assert torch.equal(q[i], law[0])
        if row.params.temperature == 0:
            assert q[i, tokens[i]] == 1
            continue
        committed = torch.tensor([len(row.tokens)])
        number = uniform(torch.tensor([row.seed]), committed + 2, Purpose.DRAFT, committed)
        assert tokens[i] == inverse_cdf(law, number)[0]


@pytest.mark.parametrize("rule", [Rejection(), Block(), Coupled()], ids=["rejection", "block", "coupled"])
def test_rows_may_come_in_any_order_and_number(rule: Verification) -> None:
    rows, logits = _rows(ALL_PARAMS, 30), _logits(30)
    drafted = torch.randint(40, (30, 1), generator=torch.Generator().manual_seed(1))
    sampler = rule.draft_sampler(rows)
    tokens, q = sampler.draw(torch.arange(30), 2, logits, drafted)
    for some in (torch.tensor([17, 3, 4]), torch.tensor([0]), torch.tensor([1]), torch.arange(29, -1, -1)):
        again, q_again = sampler.draw(some, 2, logits[some], drafted[some])
        assert torch.equal(again, tokens[some])
        assert (q is None) == (q_again is None)
        if q is not None and q_again is not None:
            assert torch.equal(q_again, q[some])


def test_q_is_kept_only_where_verification_reads_it() -> None:
    nothing = torch.zeros(4, 0, dtype=torch.int64)
    for rule, params, needs in (
        (Rejection(), (GREEDY,), False),
        (Rejection(), (GREEDY, HOT), True),
        (Block(), (HOT,), True),
        (Coupled(), (HOT,), False),
        (SyntheticAcceptance((0.5,)), (HOT,), False),
    ):
        sampler = rule.draft_sampler(_rows(params, 4))
        assert sampler.needs_q is needs
        _, q = sampler.draw(torch.arange(4), 1, _logits(4), nothing)
        assert (q is not None) is needs


def test_greedy_rows_of_a_mixed_batch_have_point_masses() -> None:
    """Also where only greedy rows are left at some depth."""
    rows, logits = _rows((GREEDY, HOT), 4), _logits(4)
    sampler = Rejection().draft_sampler(rows)
    some = torch.tensor([0, 2])
    tokens, q = sampler.draw(some, 1, logits[some], torch.zeros(2, 0, dtype=torch.int64))
    assert q is not None
    assert tokens.tolist() == logits[some].argmax(-1).tolist()
    assert torch.equal(q, torch.nn.functional.one_hot(tokens, 40).float())


def test_a_position_is_drawn_anew_in_a_later_round_unless_coupled() -> None:
    """The second draft of one round and the first of the next are about the same position."""
    logits = torch.zeros(1, 1000)
    draws: dict[str, list[int]] = {}
    for rule in (Rejection(), Coupled()):
        for committed, k in ((2, 2), (3, 1)):
            row = SampledRow(params=HOT, tokens=[0] * committed, num_prompt=2, eos_token_ids=(), seed=3)
            drafted = torch.zeros(1, k - 1, dtype=torch.int64)
            tokens, _ = rule.draft_sampler([row]).draw(torch.tensor([0]), k, logits, drafted)
            draws.setdefault(rule.name, []).append(int(tokens))
    assert draws["rejection"][0] != draws["rejection"][1]
    assert draws["coupled"][0] == draws["coupled"][1]


def test_logits_are_left_alone() -> None:
    rows, logits = _rows(ALL_PARAMS, 12), _logits(12)
    before = logits.clone()
    Rejection().draft_sampler(rows).draw(torch.arange(12), 1, logits, torch.zeros(12, 0, dtype=torch.int64))
    assert torch.equal(logits, before)
