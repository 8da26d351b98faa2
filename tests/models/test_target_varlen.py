"""A target on the varlen call: the model's own logits, any page size, and the engine's text on top."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark.drafters.draft_model import DraftModelDrafter
from dspark.engine.engine import Engine
from dspark.models.base import PassRow
from dspark.models.cuda_graphs import GraphRunner
from dspark.models.graph_buckets import MAX_ROW_TOKENS
from dspark.models.synthetic import make_synthetic_target
from dspark.models.target import load_target
from dspark.types import SamplingParams
from dspark.verification import Coupled
from tests.engine.tools import Jagged, outputs, random_prompts

NEW = [1, 8, 3, 40]


@pytest.fixture(scope="module", params=["llama", "qwen3", "gemma3"])
def folder(request, tmp_path_factory):
    return make_synthetic_target(tmp_path_factory.mktemp(request.param), family=request.param)


@pytest.mark.parametrize("page_size", [None, 1, 16])
def test_ragged_pass_equals_the_models_own_eager_forward(folder, page_size):
    target = load_target(folder, attention="varlen_reference", device="cpu")
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(259, (n,), generator=generator).tolist() for n in (41, 70, 25, 60)]
    cache = target.new_cache(4, 80, page_size=page_size)
    assert cache.page_size == (page_size or 256)
    assert all(cache.reserve(slot, 80) for slot in range(4))
    pairs = list(zip(sequences, NEW, strict=True))
    first = [PassRow(slot=i, start=0, token_ids=s[:-k], num_logits=0) for i, (s, k) in enumerate(pairs)]
    assert target.forward(first, cache).shape == (0, 259)
    rows = [
        PassRow(slot=i, start=len(s) - k, token_ids=s[-k:], num_logits=k) for i, (s, k) in enumerate(pairs)
    ]
    logits = target.forward(rows, cache)
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.inference_mode():
        own = [eager(torch.tensor([s])).logits[0, -k:] for s, k in pairs]
    torch.testing.assert_close(logits, torch.cat(own), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_engine_writes_the_same_text_as_on_sdpa(tiny_llama, tiny_llama_drafter, temperature, graphs):
    """Rows of changing depth come and go; with graphs, small passes are replays in target and drafter."""

    def texts(attention):
        models = [
            load_target(path, attention=attention, device="cpu") for path in (tiny_llama, tiny_llama_drafter)
        ]
        if graphs and attention != "sdpa":
            for model in models:
                model.graphs = GraphRunner(model.logits_of, lambda work: work, vocab_size=model.vocab_size)
                assert model.new_cache(1, 8).scratch_tokens == MAX_ROW_TOKENS
        engine = Engine(
            models[0], DraftModelDrafter(models[1]), Jagged(), verification=Coupled(), max_batch_size=3
        )
        params = SamplingParams(max_new_tokens=16, temperature=temperature)
        found, records = outputs(engine, random_prompts(5, high=90), params)
        captures = [0 if model.graphs is None else model.graphs.num_captures for model in models]
        replays = sum(record.num_pass_tokens > 0 for record in records)
        return found, captures, replays

    wanted, _, _ = texts("sdpa")
    got, captures, num_passes = texts("varlen_reference")
    assert got == wanted
    if graphs:
        assert all(2 <= count < num_passes / 2 for count in captures), (captures, num_passes)
    else:
        assert captures == [0, 0]
