"""The sampling law against transformers' own processors, and its edges."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from dspark.sampling import Position, adjust, arg_max, distribution, inverse_cdf, is_plain, race
from dspark.seeding import Purpose, exponential_race, uniform
from dspark.types import SamplingParams

VOCAB_SIZE = 64
PREFIX = (3, 9, 9, 17, 40)
EOS = (2, 5)


def _position(params: SamplingParams, drafted: Sequence[int] = (), num_prompt: int = 3) -> Position:
    return Position(params=params, prefix=PREFIX, drafted=drafted, num_prompt=num_prompt, eos_token_ids=EOS)


def _logits(num_rows: int, vocab_size: int = VOCAB_SIZE, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def _law(logits: Tensor, positions: Sequence[Position]) -> Tensor:
    return distribution(adjust(logits, positions), positions)


def _transformers_law(logits: Tensor, at: Position) -> Tensor:
    """Probabilities [1, V] by the library's processors in the library's order."""
    params, processors = at.params, LogitsProcessorList()
    if params.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.min_new_tokens:
        processors.append(
            MinNewTokensLengthLogitsProcessor(at.num_prompt, params.min_new_tokens, list(EOS), device="cpu")
        )
    processors.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        processors.append(TopPLogitsWarper(params.top_p))
    ids = torch.tensor([[*at.prefix, *at.drafted]])
    return processors(ids, logits.clone()).softmax(-1)


SAMPLED = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.6),
    SamplingParams(temperature=1.8, top_k=7),
    SamplingParams(temperature=1.0, top_k=1),
    SamplingParams(temperature=1.0, top_k=1000),
    SamplingParams(temperature=1.0, top_p=0.9),
    SamplingParams(temperature=2.5, top_p=0.4),
    SamplingParams(temperature=1.0, top_p=1e-6),
    SamplingParams(temperature=1.3, top_k=12, top_p=0.8),
    SamplingParams(temperature=1.0, repetition_penalty=1.4),
    SamplingParams(temperature=1.0, repetition_penalty=0.7),
    SamplingParams(temperature=1.0, min_new_tokens=9),
    SamplingParams(temperature=0.9, top_k=20, top_p=0.95, repetition_penalty=1.2, min_new_tokens=4),
]


class TestAgainstTransformers:
    @pytest.mark.parametrize("drafted", [(), (11, 3)], ids=["committed", "drafted"])
    @pytest.mark.parametrize("params", SAMPLED, ids=range(len(SAMPLED)))
    def test_law(self, params: SamplingParams, drafted: tuple[int, ...]) -> None:
        logits = _logits(20)
        at = _position(params, drafted)
        ours = _law(logits, [at] * 20)
        theirs = torch.cat([_transformers_law(logits[m : m + 1], at) for m in range(20)])
        assert torch.equal(ours > 0, theirs > 0)
        assert torch.allclose(ours, theirs, atol=1e-6)

    def test_rows_of_one_batch_keep_their_own_parameters(self) -> None:
        logits = _logits(len(SAMPLED))
        positions = [_position(params) for params in SAMPLED]
        ours = _law(logits, positions)
        for m, at in enumerate(positions):
            assert torch.equal(ours[m : m + 1], _law(logits[m : m + 1], [at]))

    def test_min_new_tokens_counts_output_and_drafts(self) -> None:
        """Three of five committed tokens are prompt, so two are output."""
        logits = _logits(1)
        for minimum, drafted, forbidden in ((2, (), False), (3, (), True), (3, (11,), False)):
            at = _position(SamplingParams(temperature=1.0, min_new_tokens=minimum), drafted)
            assert bool((_law(logits, [at])[0, list(EOS)] == 0).all()) is forbidden

    def test_end_tokens_outside_the_vocabulary_are_harmless(self) -> None:
        at = Position(
            params=SamplingParams(min_new_tokens=5),
            prefix=PREFIX,
            drafted=(),
            num_prompt=5,
            eos_token_ids=(2, VOCAB_SIZE + 3),
        )
        adjusted = adjust(_logits(1), [at])
        assert (adjusted == -torch.inf).nonzero().tolist() == [[0, 2]]


class TestCuts:
    """Top-k and top-p where many rows, large vocabularies and equal logits meet."""

    @pytest.mark.parametrize("vocab_size", [100, 3000, 10_000])
    @pytest.mark.parametrize("spread", [0.1, 1.0, 6.0])
    def test_against_a_plain_sort(self, vocab_size: int, spread: float) -> None:
        """Flat rows need more candidates than the first few hundred, peaked rows do not."""
        logits = _logits(6, vocab_size) * spread / 3
        logits = (logits * 8).round() / 8  # equal logits at the edge are the rule, as in bfloat16
        params = [
            SamplingParams(temperature=1.0, top_p=0.9),
            SamplingParams(temperature=1.0, top_k=50),
            SamplingParams(temperature=1.0, top_k=5000, top_p=0.5),
            SamplingParams(temperature=1.0, top_k=200, top_p=0.99),
            SamplingParams(temperature=1.0),
            SamplingParams(temperature=0.5, top_p=0.2),
        ]
        ours = _law(logits, [_position(each) for each in params])
        for m, each in enumerate(params):
            expected = _plain_cut((logits[m].double() / each.temperature).softmax(-1), each)
            assert torch.equal(ours[m] > 0, expected > 0)
            assert torch.allclose(ours[m].double(), expected, rtol=1e-5, atol=1e-9)

    def test_lower_ids_win_among_equals(self) -> None:
        logits = torch.tensor([[1.0, 2.0, 1.0, 1.0, 2.0]])
        law = _law(logits, [_position(SamplingParams(temperature=1.0, top_k=3))])
        assert (law[0] > 0).tolist() == [True, True, False, False, True]

    def test_lower_ids_win_among_equals_that_fill_the_first_candidates(self) -> None:
        """The cut falls on the last candidate looked at, and its equals lie behind it."""
        logits = torch.full((1, 500), -3.0)
        logits[0, :200] = 0.0
        logits[0, 300:310] = 5.0
        law = _law(logits, [_position(SamplingParams(temperature=1.0, top_k=128))])
        assert (law[0] > 0).nonzero().flatten().tolist() == [*range(118), *range(300, 310)]

    def test_a_small_probability_within_top_k_stays(self) -> None:
        logits = torch.tensor([[0.0, -60.0, -70.0]])
        law = _law(logits, [_position(SamplingParams(temperature=1.0, top_k=2))])
        assert (law[0] > 0).tolist() == [True, True, False]

    def test_impossible_tokens_do_not_return_through_top_k(self) -> None:
        logits = torch.tensor([[0.0, -torch.inf, -torch.inf, 1.0]])
        law = _law(logits, [_position(SamplingParams(temperature=1.0, top_k=3))])
        assert torch.allclose(law, logits.softmax(-1))


def _plain_cut(p: Tensor, params: SamplingParams) -> Tensor:
    """Top-k, then top-p of what is left, by a full stable sort of p [V]."""
    order = p.argsort(descending=True, stable=True)
    if params.top_k:
        p[order[params.top_k :]] = 0
    p = p / p.sum()
    if params.top_p < 1:
        p[order[p[order].cumsum(0) - p[order] >= params.top_p]] = 0
    return p / p.sum()


class TestTemperatureZero:
    def test_is_a_point_mass_on_the_first_arg_max(self) -> None:
        logits = torch.tensor([[1.0, 5.0, 5.0], [7.0, 1.0, 2.0]])
        greedy = _position(SamplingParams(temperature=0.0, top_k=2, top_p=0.5))
        assert _law(logits, [greedy] * 2).tolist() == [[0, 1, 0], [1, 0, 0]]

    def test_mixes_with_sampled_positions(self) -> None:
        logits = _logits(2)
        greedy, sampled = (
            _position(SamplingParams(temperature=0.0)),
            _position(SamplingParams(temperature=0.7)),
        )
        law = _law(logits, [greedy, sampled])
        assert torch.equal(law[:1], _law(logits[:1], [greedy]))
        assert torch.equal(law[1:], _law(logits[1:], [sampled]))

    @pytest.mark.parametrize("temperature", [1e-5, 1e-20, 1e-40, 1e-300])
    def test_is_the_limit_of_small_temperatures(self, temperature: float) -> None:
        logits = _logits(10)
        cold = _law(logits, [_position(SamplingParams(temperature=temperature))] * 10)
        assert torch.equal(cold, _law(logits, [_position(SamplingParams(temperature=0.0))] * 10))

    def test_plain_parameters_leave_the_arg_max_alone(self) -> None:
        logits = _logits(50)
        for params in SAMPLED:
            if is_plain(params):
                law = _law(logits, [_position(params)] * 50)
                assert torch.equal(law.argmax(-1), logits.argmax(-1))


class TestPurity:
    def test_logits_are_left_alone(self) -> None:
        for params in [*SAMPLED, SamplingParams(temperature=0.0)]:
            logits = _logits(3)
            _law(logits, [_position(params)] * 3)
            assert torch.equal(logits, _logits(3))

    def test_logits_are_not_copied_where_nothing_changes(self) -> None:
        logits = _logits(3)
        done = SamplingParams(temperature=1.0, min_new_tokens=2)
        assert (
            adjust(logits, [_position(SamplingParams(temperature=1.0)), _position(done), _position(done)])
            is logits
        )

    def test_rejected_drafts_leave_no_trace(self) -> None:
        """The law after the committed tokens is the same before and after drafts were tried on it."""
        logits = _logits(1)
        params = SamplingParams(temperature=1.0, repetition_penalty=1.5, min_new_tokens=4)
        before = _law(logits, [_position(params)])
        tried = _law(logits, [_position(params, drafted=(11, 12, 13))])
        assert not torch.equal(tried, before)
        assert torch.equal(_law(logits, [_position(params)]), before)

    def test_a_row_does_not_depend_on_the_size_of_its_batch(self) -> None:
        """Also for a vocabulary large enough for a lone row to be split between threads."""
        logits = _logits(5, 49_152)
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            for params in (SAMPLED[0], SAMPLED[5], SAMPLED[8], SAMPLED[12]):
                positions = [_position(params)] * 5
                law = _law(logits, positions)
                alone = torch.cat([_law(logits[m : m + 1], positions[:1]) for m in range(5)])
                assert torch.equal(law, alone)
        finally:
            torch.set_num_threads(before)


class TestInverseCdf:
    def test_intervals(self) -> None:
        p = torch.tensor([0.25, 0.0, 0.5, 0.25])
        u = torch.tensor([0.0, 0.2499, 0.25, 0.5, 0.7499, 0.75, 0.9999], dtype=torch.float64)
        assert inverse_cdf(p.expand(7, 4), u).tolist() == [0, 0, 2, 2, 2, 3, 3]

    def test_unnormalised(self) -> None:
        p = torch.tensor([[1.0, 3.0], [0.001, 0.003]])
        assert inverse_cdf(p, torch.tensor([0.2, 0.3])).tolist() == [0, 1]

    @pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2.0**-53])
    def test_never_a_token_of_probability_zero(self, u: float) -> None:
        """Zeros at both ends and in between, and sums that do not round to 1."""
        generator = torch.Generator().manual_seed(4)
        p = torch.rand(2000, 31, generator=generator) ** 8
        p[torch.rand(2000, 31, generator=generator) < 0.6] = 0
        p[:, [0, -1]] = 0
        p[:, 15] += 1e-12
        p[500:] *= torch.rand(1500, 1, generator=generator)
        tokens = inverse_cdf(p, torch.full((2000,), u, dtype=torch.float64))
        assert (tokens < 31).all()
        assert (p.gather(1, tokens[:, None]) > 0).all()

    def test_a_tail_too_small_to_move_the_sum(self) -> None:
        p = torch.tensor([[1.0, 1e-30, 0.0]])
        assert inverse_cdf(p, torch.tensor([1 - 2.0**-53], dtype=torch.float64)).tolist() == [0]

    def test_frequencies(self) -> None:
        p = _logits(1, 12)[0].softmax(-1)
        seeds = torch.arange(40_000)
        tokens = inverse_cdf(p.expand(40_000, 12), uniform(seeds, seeds * 0, Purpose.FINAL))
        expected = p.double() / p.double().sum() * 40_000
        assert chisquare(tokens.bincount(minlength=12), expected).pvalue > 1e-3


class TestRace:
    def test_is_the_gumbel_form(self) -> None:
        """arg max p/E = arg max log p + g with g = -log E."""
        seeds = torch.arange(300)
        noise = exponential_race(seeds, seeds, Purpose.TARGET, VOCAB_SIZE)
        p = _logits(300).softmax(-1)
        gumbel = (p.double().log() - noise.double().log()).argmax(-1)
        assert torch.equal(race(p, noise), gumbel)

    def test_never_a_token_of_probability_zero(self) -> None:
        seeds = torch.arange(2000)
        noise = exponential_race(seeds, seeds, Purpose.TARGET, 8)
        p = torch.tensor([0.0, 1e-6, 0.0, 0.0, 0.0, 1e-6, 0.0, 0.0]).expand(2000, 8)
        assert set(race(p, noise).tolist()) == {1, 5}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_arg_max_is_the_first_largest_entry(dtype):
    x = torch.randint(5, (200, 33), generator=torch.Generator().manual_seed(4)).to(dtype)  # full of ties
    x[7], x[8, 3] = -torch.inf, torch.inf
    wanted = [row.index(max(row)) for row in x.tolist()]
    assert arg_max(x).tolist() == wanted
    assert arg_max(x.T.contiguous().T).tolist() == wanted
    assert arg_max(x[:0]).shape == (0,)
