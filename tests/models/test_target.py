"""One flattened ragged pass equals each row's solo run and the model's own eager forward."""

import pytest
import torch
from transformers import AutoModelForCausalLM, DiffLlamaConfig, LlamaConfig, MambaConfig, StableLmConfig

from dspark.models.base import PassRow
from dspark.models.synthetic import make_synthetic_target
from dspark.models.target import load_target, refuse_uncroppable, resolve_device

FAMILIES = ["llama", "qwen3", "gemma2", "gemma3"]
KERNELS = ["auto", "torch"]  # compiled kernels where they know the family, and the operations of torch
NEW = [1, 8, 3, 5, 40]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return make_synthetic_target(tmp_path_factory.mktemp(request.param), family=request.param)


def random_rows(vocab_size: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocab_size, (n,), generator=generator).tolist() for n in (41, 70, 25, 50, 60)]


def run_ragged(target, sequences, page_size=None):
    """Logits of the last NEW[i] tokens of each row, in one pass after a prefill of the rest."""
    cache = target.new_cache(len(sequences), 80, page_size=page_size)
    for slot in range(len(sequences)):
        assert cache.reserve(slot, 80)
    pairs = list(zip(sequences, NEW, strict=True))
    target.forward(
        [PassRow(slot=i, start=0, token_ids=s[:-k], num_logits=0) for i, (s, k) in enumerate(pairs)], cache
    )
    return target.forward(
        [PassRow(slot=i, start=len(s) - k, token_ids=s[-k:], num_logits=k) for i, (s, k) in enumerate(pairs)],
        cache,
    ).cpu()


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("numerics", ["fast", "invariant"])
def test_ragged_pass_equals_the_models_own_eager_forward(folder, numerics, kernels):
    target = load_target(folder, numerics=numerics, kernels=kernels)
    sequences = random_rows(target.vocab_size)
    logits = run_ragged(target, sequences)
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.inference_mode():
        own = [eager(torch.tensor([s])).logits[0, -k:] for s, k in zip(sequences, NEW, strict=True)]
    torch.testing.assert_close(logits, torch.cat(own), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kernels", KERNELS)
def test_small_pages_change_nothing(folder, kernels):
    target = load_target(folder, numerics="invariant", kernels=kernels)
    sequences = random_rows(target.vocab_size)
    assert torch.equal(run_ragged(target, sequences), run_ragged(target, sequences, page_size=16))


@pytest.mark.parametrize("kernels", KERNELS)
def test_invariant_logits_are_bitwise_those_of_a_solo_run_token_by_token(folder, kernels):
    target = load_target(folder, numerics="invariant", kernels=kernels)
    sequences = random_rows(target.vocab_size)
    logits = run_ragged(target, sequences).split(NEW)
    for s, k, crowd in zip(sequences, NEW, logits, strict=True):
        cache = target.new_cache(1, 80)
        solo = [
            target.forward([PassRow(slot=0, start=t, token_ids=[token], num_logits=1)], cache)
            for t, token in enumerate(s)
        ]
        assert torch.equal(torch.cat(solo[-k:]), crowd)


@pytest.mark.parametrize("kernels", KERNELS)
def test_rejected_tokens_leave_no_trace(folder, kernels):
    """Rewind: a row that verified wrong drafts goes on exactly like one that never saw them."""
    target = load_target(folder, numerics="invariant", kernels=kernels)
    row = random_rows(target.vocab_size)[0]
    cache = target.new_cache(1, 80)
    target.forward([PassRow(slot=0, start=0, token_ids=row[:20], num_logits=1)], cache)
    clean = target.forward([PassRow(slot=0, start=20, token_ids=row[20:25], num_logits=5)], cache)
    target.forward([PassRow(slot=0, start=20, token_ids=[3] * 12, num_logits=1)], cache)
    again = target.forward([PassRow(slot=0, start=20, token_ids=row[20:25], num_logits=5)], cache)
    assert torch.equal(clean, again)


def test_attention_sinks_and_experts_run_fast_but_not_invariant(tmp_path):
    """Experts see as many rows as are routed to them, so their products change with the company."""
    folder = make_synthetic_target(tmp_path, family="gpt_oss")
    target = load_target(folder)
    sequences = random_rows(target.vocab_size)
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.inference_mode():
        own = [eager(torch.tensor([s])).logits[0, -k:] for s, k in zip(sequences, NEW, strict=True)]
    torch.testing.assert_close(run_ragged(target, sequences), torch.cat(own), atol=2e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="gave other bits alone than in company, with .* threads"):
        load_target(folder, numerics="invariant")


def test_target_knows_its_model(tiny_llama):
    target = load_target(tiny_llama)
    assert target.vocab_size == 259
    assert target.eos_token_ids == (258,)
    assert target.tokenizer is not None
    assert target.num_parameters == sum(p.numel() for p in target.model.parameters())


def test_bfloat16_follows_float32(tiny_llama):
    exact = load_target(tiny_llama)
    rounded = load_target(tiny_llama, dtype="bfloat16")
    sequences = random_rows(259)
    a, b = run_ragged(exact, sequences), run_ragged(rounded, sequences)
    assert b.dtype == torch.float32
    assert (a.argmax(-1) == b.argmax(-1)).float().mean() > 0.8


def test_recurrent_targets_are_refused():
    with pytest.raises(ValueError, match="a mamba target keeps state that cannot be rewound"):
        refuse_uncroppable(MambaConfig())


def test_a_model_with_attention_of_its_own_is_refused(tiny_llama, monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaAttention

    def bypass(self, hidden_states, **kwargs):
        return hidden_states, None

    monkeypatch.setattr(LlamaAttention, "forward", bypass)
    with pytest.raises(
        ValueError, match=r"does not attend through the registered function exactly once in layers \[0, 1\]"
    ):
        load_target(tiny_llama)


def tiny_config(kind, **kwargs):
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
    }
    return kind(**(sizes | kwargs))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            lambda: tiny_config(DiffLlamaConfig),
            "does not attend through the registered function exactly once|gives other logits",
        ),
        (lambda: tiny_config(StableLmConfig), "cannot be driven through a registered attention function"),
        (
            lambda: tiny_config(
                LlamaConfig,
                rope_parameters={
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "short_factor": [1.0] * 4,
                    "long_factor": [2.0] * 4,
                    "original_max_position_embeddings": 32,
                },
            ),
            "longrope positions turns all its keys by the length of the longest row",
        ),
    ],
    ids=["two calls a layer", "own attention", "longrope"],
)
def test_models_that_the_engine_would_get_wrong_are_refused_in_one_line(config, message, tmp_path):
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        load_target(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("threads", [2, 3])
def test_invariance_holds_for_long_passes_with_any_number_of_threads(threads, tmp_path):
    """Kernels cut a long pass of a wide layer into pieces, one a thread."""
    torch.manual_seed(0)
    config = tiny_config(LlamaConfig, intermediate_size=5632, max_position_embeddings=512)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        target = load_target(tmp_path, numerics="invariant")
        row = torch.randint(64, (257,), generator=torch.Generator().manual_seed(1)).tolist()
        logits = []
        for size in (257, 100, 8):
            cache = target.new_cache(1, 257)
            for start in range(0, 257, size):
                chunk = PassRow(slot=0, start=start, token_ids=row[start : start + size], num_logits=1)
                last = target.forward([chunk], cache)
            logits.append(last)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_invariant_context_ends_where_sums_stop_being_exact(tmp_path):
    folder = make_synthetic_target(tmp_path, max_context=9000)
    assert load_target(folder).max_context == 9000
    exact = load_target(folder, numerics="invariant", kernels="torch")
    assert exact.max_context == 8192
    assert load_target(folder, numerics="invariant", kernels="native").max_context == 9000


def test_unknown_attention_keywords_are_refused_by_name(tiny_llama):
    from dspark.models.attention import attend

    target = load_target(tiny_llama)
    module = target.model.model.layers[0].self_attn
    with pytest.raises(
        ValueError, match="LlamaAttention passes temperature_tuning, which this engine does not"
    ):
        attend(module, None, None, None, None, dspark_layout=None, temperature_tuning=2.0)


def test_invariant_numerics_needs_float32(tiny_llama):
    with pytest.raises(
        ValueError, match="invariant is proven for float32 on a CPU only, got bfloat16 on cpu"
    ):
        load_target(tiny_llama, dtype="bfloat16", numerics="invariant")


def test_rows_longer_than_the_context_are_refused(tiny_llama):
    target = load_target(tiny_llama)
    with pytest.raises(ValueError, match="rows of 513 tokens do not fit the context of .*, which is 512"):
        target.new_cache(1, 513)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_without_a_device_is_an_error():
    assert resolve_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="device=cuda needs a CUDA device"):
        resolve_device("cuda")
