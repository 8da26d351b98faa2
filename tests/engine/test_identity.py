"""One prompt, one seed, one text: under coupled and greedy nothing else can change the output, bit by bit."""

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.ngram import NgramDrafter
from dspark.drafters.synthetic import SyntheticDrafter
from dspark.engine.engine import Engine
from dspark.policies.batch_table import BatchTable
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.types import SamplingParams, Signal
from dspark.verification import Coupled, Greedy, Rejection
from tests.engine.tools import HalfTrim, Jagged, load, outputs, random_prompts, rows_of

PROMPTS = random_prompts(7)
GREEDY = SamplingParams(max_new_tokens=20)
SAMPLED = SamplingParams(max_new_tokens=20, temperature=0.9, top_p=0.95, repetition_penalty=1.1)
POLICIES = {
    "fixed": Fixed(depth=3),
    "batch_table": BatchTable(ranges=[[1, 2, 4], [3, 4, 2], [5, 64, 0]]),
    "jagged": Jagged(),
    "half_trim": HalfTrim(),
}


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def draft_target(tiny_llama_drafter):
    return load(tiny_llama_drafter)


@pytest.fixture(scope="module")
def reference(target):
    """Plain decoding, each prompt alone."""
    return {
        kind: outputs(Engine(target, verification=Coupled(), max_batch_size=1), PROMPTS, params)[0]
        for kind, params in (("greedy", GREEDY), ("sampled", SAMPLED))
    }


def make_drafter(name, target, draft_target):
    return {
        "ngram": lambda: NgramDrafter(min_n=1, max_n=3),
        "draft_model": lambda: DraftModelDrafter(draft_target),
        "self": lambda: DraftModelDrafter(target),
        "synthetic": lambda: SyntheticDrafter(vocab_size=target.vocab_size, acceptance=(0.8,)),
    }[name]()


@pytest.mark.parametrize("kind", ["greedy", "sampled"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("drafter", ["ngram", "draft_model", "self", "synthetic"])
def test_drafter_and_policy_do_not_change_the_text(target, draft_target, reference, drafter, policy, kind):
    params = GREEDY if kind == "greedy" else SAMPLED
    engine = Engine(
        target,
        make_drafter(drafter, target, draft_target),
        POLICIES[policy],
        verification=Coupled(),
        max_batch_size=4,
    )
    got, records = outputs(engine, PROMPTS, params)
    assert got == reference[kind]
    assert sum(row.drafted for row in rows_of(records)) > 0, "nothing was drafted, the test shows nothing"


@pytest.mark.parametrize("batch_size", [1, 2, 7])
@pytest.mark.parametrize("chunk", [5, 512])
def test_batch_size_and_prefill_chunks_do_not_change_the_text(
    target, draft_target, reference, batch_size, chunk
):
    for kind, params in (("greedy", GREEDY), ("sampled", SAMPLED)):
        engine = Engine(
            target,
            DraftModelDrafter(draft_target),
            Jagged(),
            verification=Coupled(),
            max_batch_size=batch_size,
            prefill_chunk=chunk,
        )
        assert outputs(engine, PROMPTS, params)[0] == reference[kind]


def test_admission_order_and_neighbours_do_not_change_the_text(target, reference):
    engine = Engine(
        target, NgramDrafter(min_n=1, max_n=3), Fixed(depth=4), verification=Coupled(), max_batch_size=3
    )
    requests = engine.requests.make(PROMPTS, SAMPLED)
    order = torch.randperm(len(requests), generator=torch.Generator().manual_seed(1)).tolist()
    list(engine.run([requests[i] for i in order]))
    assert [engine.completions[str(i)].token_ids for i in range(len(PROMPTS))] == reference["sampled"]


def test_confidence_policy_does_not_change_the_text(target, draft_target, reference):
    policy = Confidence(depth=5, threshold=0.5, signal=Signal.TOKEN_PROBABILITY, survival=False)
    engine = Engine(target, DraftModelDrafter(draft_target), policy, verification=Coupled(), max_batch_size=4)
    got, records = outputs(engine, PROMPTS, SAMPLED)
    assert got == reference["sampled"]
    assert len({row.drafted for row in rows_of(records)}) > 2, "depth should differ from row to row"


def test_greedy_text_is_the_same_under_every_rule(target, draft_target, reference):
    for rule in (Greedy(), Rejection(), Coupled()):
        engine = Engine(
            target, DraftModelDrafter(draft_target), Jagged(), verification=rule, max_batch_size=4
        )
        assert outputs(engine, PROMPTS, GREEDY)[0] == reference["greedy"]


def test_greedy_text_is_what_transformers_generates(tiny_llama, reference):
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, attn_implementation="eager", dtype=torch.float32)
    for prompt, ours in zip(PROMPTS, reference["greedy"], strict=True):
        ids = torch.tensor([prompt])
        theirs = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False, pad_token_id=0
        )
        assert tuple(theirs[0, len(prompt) :].tolist()) == ours


def test_greedy_and_sampled_rows_of_one_batch_each_equal_their_solo_run(target, draft_target, reference):
    params = [GREEDY if i % 2 else SAMPLED for i in range(len(PROMPTS))]
    engine = Engine(
        target, DraftModelDrafter(draft_target), Jagged(), verification=Coupled(), max_batch_size=7
    )
    got, _ = outputs(engine, PROMPTS, params)
    assert got == [reference["greedy" if i % 2 else "sampled"][i] for i in range(len(PROMPTS))]


def test_rejection_text_depends_on_the_draft_but_not_on_the_company(target, draft_target):
    def run(batch_size):
        engine = Engine(target, DraftModelDrafter(draft_target), Fixed(depth=3), max_batch_size=batch_size)
        return outputs(engine, PROMPTS, SAMPLED)[0]

    assert run(1) == run(7)


def test_same_seed_same_text_and_unseeded_rows_differ(target):
    prompt = PROMPTS[0]
    seeded = dataclasses.replace(SAMPLED, seed=11)
    engine = Engine(target, max_batch_size=4)
    a, b = outputs(engine, [prompt, prompt], seeded)[0]
    assert a == b
    c, d = outputs(Engine(target, max_batch_size=4), [prompt, prompt], SAMPLED)[0]
    assert c != d
    assert outputs(Engine(target, max_batch_size=1), [prompt, prompt], SAMPLED)[0] == [c, d]
    assert outputs(Engine(target, max_batch_size=4, seed=1), [prompt, prompt], SAMPLED)[0] != [c, d]


def test_drafter_equal_to_target_is_always_accepted_after_any_depths(target):
    for params in (GREEDY, SAMPLED):
        for rule in (Coupled(), Rejection()):
            engine = Engine(target, DraftModelDrafter(target), Jagged(), verification=rule, max_batch_size=3)
            rows = rows_of(outputs(engine, PROMPTS, params)[1])
            assert sum(row.drafted for row in rows) > 50
            assert all(row.accepted == row.verified == row.drafted for row in rows)
