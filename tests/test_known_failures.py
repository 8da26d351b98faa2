"""Public failures of speculation engines, each as the property that it broke (numbers: reports).

Sources: huggingface/transformers#47912, #28508, #32165; sgl-project/sglang#31599, PR 11572, PR 33643;
vllm-project/vllm PR 47616, #42508, #42533, #9441, #6038, PR 50021, #49548; vllm-metal PR 463;
vllm-ascend#13608; NVIDIA/TensorRT-LLM PR 16888, #19487, PR 19390; ml-explore/mlx-lm PR 1528, PR 1109;
ohdearquant/lattice#242, #243; ik_llama.cpp PR 2358; llama.cpp#25618.
"""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from dspark.analysis.divergence import first_divergences
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.ngram import NgramDrafter
from dspark.engine.assembly import usable_depth
from dspark.engine.engine import Engine
from dspark.models.synthetic import make_synthetic_target
from dspark.models.target import refuse_uncroppable
from dspark.policies.batch_table import BatchTable
from dspark.policies.fixed import Fixed
from dspark.types import FinishReason, SamplingParams
from dspark.verification import Coupled, Rejection
from tests.engine.tools import Jagged, WrongDrafter, load, outputs, random_prompts, rows_of

PROMPT = [72, 101, 108, 108, 111]
LONG = SamplingParams(max_new_tokens=40, ignore_eos=True)
DEPTH = 5


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def draft_target(tiny_llama_drafter):
    return load(tiny_llama_drafter)


@pytest.fixture(scope="module")
def greedy(target):
    """The target's own 40 greedy tokens."""
    return outputs(Engine(target), [PROMPT], LONG)[0][0]


def speculate(target, params, policy=None, prompts=(PROMPT,), **kwargs):
    """Everything is accepted, so that ends fall into the middle of blocks."""
    engine = Engine(target, DraftModelDrafter(target), policy or Fixed(depth=DEPTH), **kwargs)
    requests = engine.requests.make(list(prompts), params)
    records = list(engine.run(requests))
    return [engine.completions[r.request_id] for r in requests], records


def first_at(tokens, index):
    """``tokens[index]`` occurs there for the first time."""
    return tokens[index] not in tokens[:index]


def mid_block(greedy):
    """A place in the middle of a block whose token is new there."""
    return next(i for i in range(8, 40) if first_at(greedy, i) and (i - 1) % (DEPTH + 1) not in (0, DEPTH))


def test_01_nothing_after_an_end_token_in_the_middle_of_a_block(target, greedy):
    at = mid_block(greedy)
    params = SamplingParams(max_new_tokens=40, eos_token_ids=(greedy[at],))
    (done,), records = speculate(target, params)
    assert done.finish_reason is FinishReason.EOS
    assert done.token_ids == greedy[: at + 1]
    assert sum(row.emitted for row in rows_of(records)) == at, "the first token came with the prefill"
    assert sum(len(c.token_ids) for record in records for c in record.chunks) == at + 1
    last = rows_of(records)[-1]
    assert last.accepted_emitted <= last.emitted < last.accepted + 1, "accepted beyond the end is not counted"


def test_02_the_earliest_of_stop_end_token_and_cap_wins_by_position(target, greedy):
    at = mid_block(greedy)
    token = greedy[at]
    for cap, reason, length in ((at + 1, FinishReason.EOS, at + 1), (at, FinishReason.LENGTH, at)):
        params = SamplingParams(max_new_tokens=cap, eos_token_ids=(token,))
        (done,), _ = speculate(target, params)
        assert (done.finish_reason, done.token_ids) == (reason, greedy[:length])


def test_03_text_ids_and_counters_end_at_the_same_token_of_a_stop_string(target, greedy):
    text = target.tokenizer.decode(greedy)
    start = next(
        i
        for i in range(10, len(text) - 3)
        if text.find(text[i : i + 2]) == i and "\ufffd" not in text[i : i + 2]
    )
    stop = text[start : start + 2]
    params = SamplingParams(max_new_tokens=40, stop=("never occurs", stop), ignore_eos=True)
    (done,), records = speculate(target, params)
    assert done.finish_reason is FinishReason.STOP
    assert done.text == text[:start]
    n = len(done.token_ids)
    assert stop in target.tokenizer.decode(greedy[:n])
    assert stop not in target.tokenizer.decode(greedy[: n - 1]), "the token that completes it is the last"
    assert sum(row.emitted for row in rows_of(records)) == n - 1


@pytest.mark.parametrize("cap", [1, 2, 3, 7, 8])
def test_04_exact_cap_and_usage_equals_emitted(target, greedy, cap):
    (done,), records = speculate(target, SamplingParams(max_new_tokens=cap, ignore_eos=True))
    assert done.token_ids == greedy[:cap]
    assert done.finish_reason is FinishReason.LENGTH
    assert sum(row.emitted for row in rows_of(records)) == cap - 1
    assert all(row.drafted <= cap - 1 for row in rows_of(records)), "drafts beyond the cap are waste"


def test_07_drafter_stays_in_step_after_any_depth_sequence(target):
    """Depth K, 0, K: with drafter = target every draft must be accepted after the pause too."""
    for policy in (Jagged(zero_every=2), Jagged(zero_every=4), Pause()):
        _, records = speculate(target, LONG, policy, random_prompts(3), max_batch_size=2)
        rows = rows_of(records)
        assert any(row.drafted == 0 for row in rows)
        assert all(row.accepted == row.drafted for row in rows)
        assert sum(row.drafted for row in rows) > 30


class Pause(Jagged):
    """Depth 4, then twelve steps of nothing, then depth 4 again."""

    def plan(self, ctx, state):
        return torch.full_like(ctx.slots, 0 if 3 <= ctx.step < 15 else 4)


def test_08_a_depth_zero_row_drafts_nothing_and_gives_one_token(target):
    _, records = speculate(target, LONG, Jagged(), random_prompts(4), max_batch_size=4)
    rows = rows_of(records)
    assert all(row.drafted <= row.allowed <= row.planned for row in rows)
    zero = [row for row in rows if row.planned == 0]
    assert zero
    assert all(row.emitted == 1 and row.verified == 0 for row in zero)


def test_10_zero_accepted_is_a_normal_case(target, greedy):
    drafter = WrongDrafter({tuple(PROMPT): list(greedy)}, target.vocab_size)
    got, records = outputs(Engine(target, drafter, Fixed(depth=3)), [PROMPT], LONG)
    assert all(row.accepted == 0 and row.emitted == 1 for row in rows_of(records))
    assert got == [greedy]


def test_11_a_depth_zero_row_does_not_advance_a_random_stream(target):
    params = SamplingParams(max_new_tokens=30, temperature=1.0, seed=5, ignore_eos=True)
    plain = outputs(Engine(target, verification=Coupled()), [PROMPT], params)[0]
    for policy in (Jagged(zero_every=2), Pause()):
        (done,), _ = speculate(target, params, policy, verification=Coupled())
        assert [done.token_ids] == plain


def test_12_same_seed_same_text_in_any_batch_and_unseeded_rows_differ(target):
    seeded = SamplingParams(max_new_tokens=12, temperature=1.0, seed=5)
    alone = outputs(Engine(target), [PROMPT], seeded)[0][0]
    crowd = [*random_prompts(3), PROMPT, PROMPT]
    params = [dataclasses.replace(seeded, seed=i) for i in range(3)] + [seeded, seeded]
    got = outputs(Engine(target, max_batch_size=5), crowd, params)[0]
    assert got[3] == got[4] == alone
    unseeded = outputs(
        Engine(target, max_batch_size=2), [PROMPT] * 2, dataclasses.replace(seeded, seed=None)
    )[0]
    assert unseeded[0] != unseeded[1]


def test_13_greedy_and_sampled_rows_in_one_batch_equal_their_solo_runs(target):
    greedy_params = SamplingParams(max_new_tokens=12)
    sampled = SamplingParams(max_new_tokens=12, temperature=1.0, seed=3)
    solo = [outputs(Engine(target), [PROMPT], params)[0][0] for params in (greedy_params, sampled)]
    assert outputs(Engine(target, max_batch_size=2), [PROMPT] * 2, [greedy_params, sampled])[0] == solo


def test_16_trims_are_never_negative_and_recurrent_caches_are_refused(target):
    ctx = SimpleNamespace(
        remaining_tokens=torch.tensor([1, 2, 0]),
        depth_caps=torch.tensor([9, 9, 9]),
        context_lengths=torch.tensor([100, 4, 50]),
    )
    assert usable_depth(ctx, 40).tolist() == [0, 1, 0]
    hybrid = SimpleNamespace(model_type="qwen3_next", layer_types=["linear_attention", "full_attention"])
    with pytest.raises(ValueError, match=r"cannot be rewound after a rejection \(linear_attention\)"):
        refuse_uncroppable(hybrid)


@pytest.mark.parametrize(("rule", "temperature"), [(Rejection, 0.0), (Coupled, 0.0), (Coupled, 1.0)])
def test_18_an_always_wrong_drafter_gives_exactly_the_plain_output(target, rule, temperature):
    params = SamplingParams(max_new_tokens=30, temperature=temperature, seed=2)
    plain = outputs(Engine(target, verification=Coupled()), [PROMPT], params)[0]
    drafter = WrongDrafter({tuple(PROMPT): list(plain[0])}, target.vocab_size)
    for depth in (1, 4):
        engine = Engine(target, drafter, Fixed(depth=depth), verification=rule())
        got, records = outputs(engine, [PROMPT], params)
        assert got == plain
        assert all(row.accepted == 0 for row in rows_of(records))


def test_19_depth_is_clamped_to_both_remaining_contexts_down_to_zero(tmp_path, draft_target):
    target = load(make_synthetic_target(tmp_path / "short", max_context=64))
    prompt = random_prompts(1, seed=4, low=50, high=51)[0]
    plain = outputs(Engine(target), [prompt], LONG)[0]
    assert len(plain[0]) == 14, "50 prompt tokens leave 14 in a context of 64"
    (done,), records = speculate(target, LONG, prompts=[prompt])
    assert done.finish_reason is FinishReason.CONTEXT
    assert [done.token_ids] == plain
    assert all(row.context + row.verified + 1 <= 64 for row in rows_of(records))

    short = load(make_synthetic_target(tmp_path / "shorter", max_context=24))
    engine = Engine(draft_target, DraftModelDrafter(short), Fixed(depth=4))
    prompt = prompt[:18]
    got, records = outputs(engine, [prompt], LONG)
    assert got == outputs(Engine(draft_target), [prompt], LONG)[0]
    depths = [(row.context, row.drafted) for row in rows_of(records)]
    assert all(drafted <= max(0, 24 - context) for context, drafted in depths)
    assert depths[0][1] > 0
    assert depths[-1][1] == 0


def test_21_penalties_see_every_committed_token_and_no_rejected_one(target, draft_target):
    params = SamplingParams(max_new_tokens=30, repetition_penalty=1.5, min_new_tokens=10)
    plain = outputs(Engine(target), [PROMPT], params)[0]
    assert plain != outputs(Engine(target), [PROMPT], SamplingParams(max_new_tokens=30))[0], "it must bite"
    for drafter in (
        DraftModelDrafter(draft_target),
        DraftModelDrafter(target),
        NgramDrafter(min_n=1, max_n=2),
    ):
        assert outputs(Engine(target, drafter, Fixed(depth=4)), [PROMPT], params)[0] == plain


def test_22_rows_equal_their_solo_runs_under_unequal_acceptance(target, draft_target):
    prompts = random_prompts(5, seed=9)
    solo = [outputs(Engine(target), [p], LONG)[0][0] for p in prompts]
    engine = Engine(target, DraftModelDrafter(draft_target), Fixed(depth=4), max_batch_size=5)
    got, records = outputs(engine, prompts, LONG)
    assert got == solo
    assert any(len({row.accepted for row in record.rows}) > 1 for record in records), (
        "acceptance was never ragged"
    )


def test_24_where_rounding_can_matter_first_divergence_and_margin_are_reported(target, greedy):
    """A pretended divergence is found at its place, with the margin of the two tokens there."""
    engine = Engine(target)
    (done,) = engine.generate([PROMPT], LONG)
    assert done.token_ids == greedy
    wrong = (*greedy[:7], (greedy[7] + 1) % 259, *greedy[8:])
    other = {"0": dataclasses.replace(done, token_ids=wrong)}
    assert first_divergences(target, {"0": done}, {"0": done}) == []
    (found,) = first_divergences(target, {"0": done}, other)
    assert (found.position, found.reference_token, found.other_token) == (7, greedy[7], wrong[7])
    with torch.inference_mode():
        layout = target.new_cache(1, 64)
        from dspark.models.base import PassRow

        ids = [*PROMPT, *greedy[:7]]
        logits = target.forward([PassRow(slot=0, start=0, token_ids=ids, num_logits=1)], layout)[0]
    assert found.logit_margin == float(logits[greedy[7]] - logits[wrong[7]]) > 0
    (cut,) = first_divergences(target, {"0": done}, {"0": dataclasses.replace(done, token_ids=greedy[:5])})
    assert (cut.position, cut.other_token, cut.logit_margin) == (5, None, None)


def test_24_sampled_margins_are_those_of_the_race(target):
    params = SamplingParams(max_new_tokens=10, temperature=1.0, ignore_eos=True)
    engine = Engine(target, verification=Coupled())
    requests = engine.requests.make([PROMPT], params)
    list(engine.run(requests))
    done = engine.completions["0"]
    for token in range(0, 259, 37):  # the emitted token wins its race against any other
        if token != done.token_ids[3]:
            other = {"0": dataclasses.replace(done, token_ids=(*done.token_ids[:3], token))}
            (found,) = first_divergences(target, {"0": done}, other, requests=requests)
            assert found.logit_margin is not None
            assert found.logit_margin > 0


def test_24_a_token_just_outside_the_nucleus_still_has_a_finite_margin(target):
    params = SamplingParams(max_new_tokens=5, temperature=1.0, top_k=2, ignore_eos=True)
    engine = Engine(target, verification=Coupled())
    requests = engine.requests.make([PROMPT], params)
    list(engine.run(requests))
    done = engine.completions["0"]
    margins = []
    for token in range(0, 259, 7):
        other = {"0": dataclasses.replace(done, token_ids=(*done.token_ids[:2], token))}
        found = first_divergences(target, {"0": done}, other, requests=requests)
        margins += [divergence.logit_margin for divergence in found]
    assert len(margins) > 30
    assert all(margin is not None and abs(margin) < 1e6 for margin in margins)


def test_25_tables_count_decode_rows_and_hysteresis_stops_flapping(target):
    """Five rows decode while others prefill: the table must look at the five."""
    prompts = random_prompts(8, seed=3, low=30, high=31)
    table = BatchTable(ranges=[[1, 5, 3], [6, 64, 0]])
    engine = Engine(target, DraftModelDrafter(target), table, max_batch_size=8, prefill_chunk=40)
    _, records = outputs(engine, prompts, LONG)
    mixed = [record for record in records if record.rows and record.num_prefill_rows]
    assert mixed
    for record in records:
        wanted = 3 if len(record.rows) <= 5 else 0
        assert all(row.planned == wanted for row in record.rows)
