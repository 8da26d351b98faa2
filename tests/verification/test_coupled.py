"""Coupled verification: one text per request, and as much agreement as theory promises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dspark.types import Draft, SamplingParams
from dspark.verification import Coupled, Rejection, SampledRow
from tests.verification.toy_engine import chi_square_p_value, exact_joint, generate, toy_logits

HOT = SamplingParams(temperature=1.0)
CUT = SamplingParams(temperature=0.8, top_k=3, top_p=0.9)
PENALISED = SamplingParams(temperature=1.1, repetition_penalty=1.5, min_new_tokens=3)


@pytest.mark.parametrize("params", [HOT, CUT, PENALISED], ids=["hot", "cut", "penalised"])
def test_text_is_a_function_of_prompt_seed_and_target(params: SamplingParams) -> None:
    """For every noise, the text of any drafter and depth is that of plain decoding."""
    target = toy_logits(1, 4)
    sizes = {"num_rows": 600, "num_new": 8}
    plain = generate(Coupled(), target, target, params, max_depth=0, **sizes)
    assert plain.verified == 0
    for drafter in (target, toy_logits(2, 4), toy_logits(3, 4, spread=4.0)):
        for deterministic in (False, True):
            run = generate(Coupled(), target, drafter, params, deterministic=deterministic, **sizes)
            assert torch.equal(run.tokens, plain.tokens)
            assert run.accepted > 0
    deep = generate(Coupled(), target, toy_logits(2, 4), params, ragged=False, max_depth=5, **sizes)
    assert torch.equal(deep.tokens, plain.tokens)
    assert len(set(map(tuple, plain.tokens.tolist()))) > 100, "seeds must differ in their texts"


def test_dropping_a_draft_by_its_own_token_is_safe() -> None:
    """Class D: harmless here, and biased under rejection, which makes this test worth something."""
    target, drafter = toy_logits(1, 3), toy_logits(2, 3)

    def drop_zeros(draft: Draft) -> Tensor:
        return (draft.tokens != 0).long().cumprod(1).sum(1)

    sizes = {"num_rows": 6000, "num_new": 3}
    plain = generate(Coupled(), target, target, HOT, max_depth=0, **sizes)
    coupled = generate(Coupled(), target, drafter, HOT, trim=drop_zeros, **sizes)
    assert torch.equal(coupled.tokens, plain.tokens)
    rejection = generate(Rejection(), target, drafter, HOT, trim=drop_zeros, **sizes)
    assert chi_square_p_value(rejection.tokens, exact_joint(target, HOT, 3)) < 1e-6


def test_the_target_as_its_own_drafter_is_accepted_whole() -> None:
    target = toy_logits(4, 4)
    run = generate(Coupled(), target, target, CUT, num_rows=500, num_new=6)
    assert run.accepted == run.verified > 0


@pytest.mark.parametrize("seed", range(4))
def test_agreement_is_what_the_race_gives(seed: int) -> None:
    """Both races are won by v iff E_w/E_v exceeds max(p_w/p_v, q_w/q_v) for all w.

    Hence P(v wins both) = 1 / sum_w max(p_w/p_v, q_w/q_v), and the sum over v is at least
    (1 - TV)/(1 + TV) (Daliri, Musco and Suresh, arXiv 2408.07978).
    """
    num_rows = 20_000
    generator = torch.Generator().manual_seed(seed)
    target, drafter = torch.randn(2, 6, generator=generator, dtype=torch.float64) * 1.5
    p, q = target.softmax(0), drafter.softmax(0)
    ratios = torch.maximum(p[:, None] / p, q[:, None] / q)  # [w, v]
    agreement = float((1 / ratios.sum(0)).sum())
    distance = float((p - q).abs().sum() / 2)
    assert agreement >= (1 - distance) / (1 + distance)

    rows = [
        SampledRow(params=HOT, tokens=[0, 0], num_prompt=2, eos_token_ids=(), seed=i) for i in range(num_rows)
    ]
    everyone = torch.arange(num_rows)
    drawn, kept = (
        Coupled()
        .draft_sampler(rows)
        .draw(everyone, 1, drafter.float().expand(num_rows, 6), torch.zeros(num_rows, 0, dtype=torch.int64))
    )
    assert kept is None
    lengths = torch.ones_like(everyone)
    verdict = Coupled().verify(
        rows,
        Draft(tokens=drawn[:, None], lengths=lengths, q=None),
        lengths,
        target.float().expand(2 * num_rows, 6),
    )
    rate = float(verdict.accepted.double().mean())
    error = (agreement * (1 - agreement) / num_rows) ** 0.5
    assert abs(rate - agreement) < 4 * error
