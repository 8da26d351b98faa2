"""Block drafters in the engine: the text stays the target's, under any rule, depths and company."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from dspark.drafters.block import BlockDrafter
from dspark.engine.engine import Engine
from dspark.models.synthetic import make_synthetic_target
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.types import SamplingParams, Signal
from dspark.verification import Coupled, Greedy, Rejection
from tests.drafters.block_tools import PLAIN_HEADS, SPEC, random_backbone
from tests.engine.tools import HalfTrim, Jagged, load, outputs, random_prompts, rows_of

PROMPTS = random_prompts(5, high=24)
GREEDY = SamplingParams(max_new_tokens=12)
SAMPLED = SamplingParams(max_new_tokens=12, temperature=1.3, repetition_penalty=1.1)
FITTING = replace(SPEC, hidden_size=64, vocab_size=259, draft_vocab_size=259, num_target_layers=2)
SPECS = {
    "dspark": FITTING,
    "rnn_reduced": replace(FITTING, markov_head_type="rnn", draft_vocab_size=90),
    "dflash_unused_anchor": replace(FITTING, kind="dflash", samples_from_anchor=False, **PLAIN_HEADS),
}
POLICIES = {
    "fixed": Fixed(depth=5),
    "jagged": Jagged(),
    "half_trim": HalfTrim(),
    "confidence": Confidence(depth=5, threshold=0.4, signal=Signal.TOP1_PROBABILITY, survival=False),
}


def drafter_for(target, spec):
    model = target.model
    tables = model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()
    return BlockDrafter(random_backbone(spec, tables=tables), kernels=target.native and target.native.kernels)


@pytest.fixture(scope="module", params=["tiny_llama", "tiny_qwen3"])
def target(request):
    return load(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def reference(target):
    """Plain decoding, each prompt alone."""
    return {
        params: outputs(Engine(target, verification=Coupled(), max_batch_size=1), PROMPTS, params)[0]
        for params in (GREEDY, SAMPLED)
    }


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        *(("dspark", policy) for policy in POLICIES),
        ("rnn_reduced", "jagged"),
        ("dflash_unused_anchor", "half_trim"),
    ],
)
def test_the_text_is_that_of_plain_decoding(target, reference, spec, policy):
    accepted = 0
    for params, rule in ((GREEDY, Greedy()), (GREEDY, Rejection()), (SAMPLED, Coupled())):
        engine = Engine(
            target,
            drafter_for(target, SPECS[spec]),
            POLICIES[policy],
            verification=rule,
            max_batch_size=4,
            prefill_chunk=11,
        )
        got, records = outputs(engine, PROMPTS, params)
        assert got == reference[params]
        accepted += sum(row.accepted for row in rows_of(records))
    assert accepted > 0, "nothing was ever accepted, the test shows little"


def test_a_drafter_serves_one_engine_after_another(target, reference):
    drafter = drafter_for(target, FITTING)
    for batch_size in (1, 6, 2):
        engine = Engine(target, drafter, Jagged(), verification=Coupled(), max_batch_size=batch_size)
        assert outputs(engine, PROMPTS, SAMPLED)[0] == reference[SAMPLED]


def test_features_are_the_layers_outputs_as_transformers_numbers_them(tiny_llama):
    """Layer l of ours and DeepSpec's is hidden_states[l + 1] of Hugging Face, -1 the embedding."""
    target = load(tiny_llama, numerics="fast")
    drafter = drafter_for(target, replace(FITTING, feature_layers=(-1, 0)))
    handed = []
    keep = drafter.take_features
    drafter.take_features = lambda rows, features: (handed.append((rows, features)), keep(rows, features))
    engine = Engine(target, drafter, Fixed(depth=2), verification=Greedy(), max_batch_size=1)
    (output,), _ = outputs(engine, PROMPTS[:1], GREEDY)
    ids = torch.tensor([[*PROMPTS[0], *output]])
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, attn_implementation="eager", dtype=torch.float32)
    states = model(ids, output_hidden_states=True).hidden_states
    wanted = torch.cat([states[0][0], states[1][0]], -1)
    for rows, features in handed:
        (row,) = rows
        kept = [t for t, token in enumerate(row.token_ids) if ids[0, row.start + t] == token]
        assert kept[0] == 0
        for t in kept[: 1 if len(kept) < len(row.token_ids) else None]:
            torch.testing.assert_close(features[t], wanted[row.start + t], atol=1e-4, rtol=1e-4)


def test_a_policy_deeper_than_a_block_is_refused(target):
    with pytest.raises(ValueError, match="may draft up to 6 tokens, and the drafter's blocks have 5"):
        Engine(target, drafter_for(target, FITTING), Fixed(depth=6))


def test_sampled_text_follows_the_targets_law_with_a_reduced_vocabulary(tmp_path):
    """The law of the second token, by enumeration of the first; the drafter has 5 of 12 tokens."""
    count = 2000
    target = load(make_synthetic_target(tmp_path, vocab_size=12), numerics="fast")
    spec = replace(SPEC, hidden_size=64, vocab_size=12, draft_vocab_size=5, num_target_layers=2)
    drafter = drafter_for(target, spec)
    prompt = [3, 1, 4, 1, 5]
    params = SamplingParams(max_new_tokens=4, temperature=1.0, ignore_eos=True)
    engine = Engine(target, drafter, Fixed(depth=3), verification=Rejection(), max_batch_size=128)
    got, records = outputs(engine, [prompt] * count, params)
    first = torch.softmax(target.eager_logits(torch.tensor([prompt]))[0].double(), -1)
    after = torch.softmax(target.eager_logits(torch.tensor([[*prompt, v] for v in range(12)])).double(), -1)
    law = first @ after
    seen = torch.bincount(torch.tensor([tokens[1] for tokens in got]), minlength=12)
    assert chisquare(seen.numpy(), (law * count / law.sum()).numpy()).pvalue > 0.01
    rows = rows_of(records)
    assert 0.05 < sum(row.accepted for row in rows) / sum(row.verified for row in rows) < 0.95
