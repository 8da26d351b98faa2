"""Greedy verification refuses sampling, early and by name; its decisions are in test_decision.py."""

from __future__ import annotations

import pytest
import torch

from dspark.types import SamplingParams
from dspark.verification import Greedy, Rejection, SampledRow

WARM = SamplingParams(temperature=0.7)


def _row(params: SamplingParams) -> SampledRow:
    return SampledRow(params=params, tokens=[1, 2], num_prompt=2, eos_token_ids=(), seed=0)


def test_parameters_can_be_checked_before_a_model_loads() -> None:
    Greedy().check_params(SamplingParams(temperature=0.0))
    Rejection().check_params(WARM)
    with pytest.raises(ValueError, match=r"temperature 0, got 0\.7: .*'coupled'") as error:
        Greedy().check_params(WARM)
    assert "\n" not in str(error.value)


def test_sampled_rows_are_refused() -> None:
    rows = [_row(SamplingParams(temperature=0.0)), _row(WARM)]
    with pytest.raises(ValueError, match="temperature 0, got"):
        Greedy().draft_sampler(rows)
    with pytest.raises(ValueError, match="temperature 0, got"):
        Greedy().verify(rows, None, torch.zeros(2, dtype=torch.int64), torch.zeros(2, 4))


def test_draws_arg_maxima_and_keeps_no_q() -> None:
    sampler = Greedy().draft_sampler([_row(SamplingParams(temperature=0.0))] * 3)
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    tokens, q = sampler.draw(torch.tensor([2, 0]), 1, logits, torch.zeros(2, 0, dtype=torch.int64))
    assert tokens.tolist() == [1, 0]
    assert q is None
    assert not sampler.needs_q
