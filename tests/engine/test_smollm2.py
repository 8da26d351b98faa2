"""The real model: greedy text equals transformers', and sampled text follows the target's law."""

import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.ngram import NgramDrafter
from dspark.engine.engine import Engine
from dspark.models.base import PassRow, Target
from dspark.models.target import load_target
from dspark.policies.fixed import Fixed
from dspark.sampling import Position, distribution
from dspark.types import SamplingParams
from dspark.verification import Block, Coupled, Rejection
from tests.engine.tools import Jagged, outputs, rows_of

TEXTS = (
    "The capital of France is",
    "def add(a, b):\n    return",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4,",
)


@pytest.fixture(scope="module")
def target(smollm2_path):
    return load_target(smollm2_path)


class Flattened(Target):
    """The target with logits at two thirds: another law over the same vocabulary, often right."""

    def __init__(self, inner):
        self.inner = inner
        self.vocab_size, self.max_context = inner.vocab_size, inner.max_context
        self.eos_token_ids, self.device, self.dtype = inner.eos_token_ids, inner.device, inner.dtype

    def new_cache(self, num_slots, max_tokens):
        return self.inner.new_cache(num_slots, max_tokens)

    def forward(self, rows, cache):
        return self.inner.forward(rows, cache) / 1.5


def test_greedy_text_equals_transformers(target, smollm2_path):
    """At ties of rounding two float32 forwards may part; these prompts have none within 12 tokens."""
    prompts = [target.tokenizer(text)["input_ids"] for text in TEXTS]
    engine = Engine(target, NgramDrafter(min_n=1, max_n=3), Jagged(), max_batch_size=3)
    got, records = outputs(engine, prompts, SamplingParams(max_new_tokens=12, ignore_eos=True))
    assert sum(row.accepted for row in rows_of(records)) > 0
    model = AutoModelForCausalLM.from_pretrained(smollm2_path, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    for prompt, ours in zip(prompts, got, strict=True):
        ids = torch.tensor([prompt])
        theirs = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=2
        )
        assert tuple(theirs[0, len(prompt) :].tolist()) == ours


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        (Rejection, 300),
        pytest.param(Rejection, 3000, marks=pytest.mark.slow),
        pytest.param(Block, 3000, marks=pytest.mark.slow),
        pytest.param(Coupled, 3000, marks=pytest.mark.slow),
    ],
)
def test_sampled_tokens_follow_the_targets_law(target, rule, count):
    """Chi-square of the first drafted positions, given a fixed prefix, over ``count`` seeds.

    The first output token comes from the prefill; the second is the first that is drafted. They are
    compared among the rows that share the likeliest first token, and so on; each law is computed from
    one plain pass over that prefix.
    """
    prompt = target.tokenizer("The weather today is")["input_ids"]
    batch = 100
    params = SamplingParams(max_new_tokens=3, temperature=0.8, top_k=6, ignore_eos=True)
    engine = Engine(
        target,
        DraftModelDrafter(Flattened(target)),
        Fixed(depth=2),
        verification=rule(),
        max_batch_size=batch,
    )
    got, records = outputs(engine, [prompt] * count, params)
    drafted = sum(row.verified for row in rows_of(records))
    accepted = sum(row.accepted for row in rows_of(records))
    assert 0.2 < accepted / drafted < 0.98, "the drafter's law must differ and still be accepted at times"

    first = law(target, prompt, params)
    check([ids[0] for ids in got], first, count)
    start = int(first.argmax())
    after = [ids for ids in got if ids[0] == start]
    second = law(target, [*prompt, start], params)
    check([ids[1] for ids in after], second, len(after))
    pair = int(second.argmax())
    third = [ids for ids in after if ids[1] == pair]
    if count >= 1000:
        check([ids[2] for ids in third], law(target, [*prompt, start, pair], params), len(third))


def law(target, prefix, params):
    """Float64 [V], from one plain pass over the prefix."""
    cache = target.new_cache(1, len(prefix))
    logits = target.forward([PassRow(slot=0, start=0, token_ids=prefix, num_logits=1)], cache)
    at = Position(params=params, prefix=prefix, drafted=(), num_prompt=len(prefix), eos_token_ids=())
    return distribution(logits, [at])[0].double()


def check(tokens, p, count):
    """Observed against expected counts over the support; nothing falls outside it."""
    support = p.nonzero().squeeze(1).tolist()
    assert set(tokens) <= set(support)
    assert count >= 100, "too few samples to say anything"
    observed = [tokens.count(token) for token in support]
    expected = (p[support] / p[support].sum() * count).tolist()
    assert chisquare(observed, expected).pvalue > 1e-3
