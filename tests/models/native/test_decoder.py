"""Whole passes through the kernels against the models' own eager forwards."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from dspark.models.base import PassRow
from dspark.models.native import choice
from dspark.models.native.compile import NoCompilerError
from dspark.models.native.decoder import NativeDecoder
from dspark.models.native.family import refusal
from dspark.models.target import load_target

SIZES = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES, rms_norm_eps=1e-5),
    "llama, a head a key": LlamaConfig(**{**SIZES, "num_key_value_heads": 6}, attention_bias=True),
    "llama, many heads a key": LlamaConfig(**{**SIZES, "num_attention_heads": 12, "num_key_value_heads": 1}),
    "llama3 positions": LlamaConfig(
        **SIZES,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 1e4,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "yarn positions": LlamaConfig(
        **SIZES,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "linear positions": LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "heads of 72": Qwen3Config(**SIZES, head_dim=72),  # one whole step of the values' mix, and a part
    "heads of 128": LlamaConfig(**SIZES, head_dim=128),
    "mistral": MistralConfig(**SIZES, sliding_window=9),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=20),
    "qwen3, windows": Qwen3Config(
        **SIZES, head_dim=16, use_sliding_window=True, sliding_window=7, max_window_layers=1
    ),
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def folder(request, tmp_path_factory):
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(CONFIGS[request.param])
    with torch.no_grad():
        for name, weight in model.named_parameters():  # norms that are not 1, biases that are not 0
            weight.copy_(torch.randn_like(weight) * 0.3 + (1.0 if "norm" in name else 0.0))
    path = tmp_path_factory.mktemp("native")
    model.save_pretrained(path)
    return path


def tokens_of(row: int, count: int) -> list[int]:
    return [(17 * row + 5 * i * i + i) % 101 for i in range(count)]


LENGTHS, NEW = [61, 30, 1, 90, 44], [1, 8, 1, 70, 5]


def ragged(target, page_size=None):
    cache = target.new_cache(len(LENGTHS), 128, page_size=page_size)
    assert all(cache.reserve(slot, 128) for slot in range(len(LENGTHS)))
    head = [
        PassRow(slot=i, start=0, token_ids=tokens_of(i, n)[: n - k], num_logits=0)
        for i, (n, k) in enumerate(zip(LENGTHS, NEW, strict=True))
        if n > k
    ]
    assert target.forward(head, cache).shape == (0, 101)
    tail = [
        PassRow(slot=i, start=n - k, token_ids=tokens_of(i, n)[n - k :], num_logits=k)
        for i, (n, k) in enumerate(zip(LENGTHS, NEW, strict=True))
    ]
    return target.forward(tail, cache)


def test_a_ragged_pass_is_the_eager_forward(folder):
    target = load_target(folder, kernels="native")
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    with torch.inference_mode():
        own = [
            eager(torch.tensor([tokens_of(i, n)])).logits[0, -k:]
            for i, (n, k) in enumerate(zip(LENGTHS, NEW, strict=True))
        ]
    torch.testing.assert_close(ragged(target), torch.cat(own), atol=2e-4, rtol=1e-4)


def test_token_by_token_alone_gives_the_same_bits(folder):
    target = load_target(folder, kernels="native")
    together = ragged(target).split(NEW)
    for i, (n, k) in enumerate(zip(LENGTHS, NEW, strict=True)):
        cache = target.new_cache(1, 128)
        alone = [
            target.forward([PassRow(slot=0, start=at, token_ids=[token], num_logits=1)], cache)
            for at, token in enumerate(tokens_of(i, n))
        ]
        assert torch.equal(torch.cat(alone[-k:]), together[i])


def test_pages_and_threads_change_no_bit(folder):
    target = load_target(folder, kernels="native")
    wanted = ragged(target)
    for page_size in (1, 7, 64):
        assert torch.equal(ragged(target, page_size), wanted)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(ragged(target), wanted)
    finally:
        torch.set_num_threads(threads)


def test_the_length_of_the_cache_changes_no_bit(folder):
    """Turns of positions are computed for all that a cache can hold, in blocks of one size."""
    row = [PassRow(slot=0, start=0, token_ids=tokens_of(3, 70), num_logits=70)]
    logits = [
        target.forward(row, target.new_cache(1, size))
        for size in (70, 97, 256)
        for target in (load_target(folder, kernels="native"),)
    ]
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_torchs_defaults_do_not_matter(folder):
    target = load_target(folder, kernels="native")
    row = [PassRow(slot=0, start=0, token_ids=tokens_of(1, 9), num_logits=2)]
    wanted = target.forward(row, target.new_cache(1, 32))
    cache = target.new_cache(1, 32)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(target.forward(row, cache), wanted)
        with torch.device("meta"):
            assert torch.equal(target.forward(row, cache), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "row",
    [
        PassRow(slot=0, start=6, token_ids=[1, 2, 3], num_logits=1),
        PassRow(slot=0, start=-1, token_ids=[1], num_logits=1),
        PassRow(slot=0, start=0, token_ids=[1], num_logits=2),
        PassRow(slot=0, start=0, token_ids=[101], num_logits=1),
        PassRow(slot=0, start=0, token_ids=[-1], num_logits=1),
    ],
    ids=["past the cache", "before it", "logits without tokens", "a large id", "a negative id"],
)
def test_what_lies_outside_is_refused_before_the_kernels_reach_for_it(folder, row):
    target = load_target(folder, kernels="native")
    with pytest.raises(ValueError, match="a row of a pass must lie in|token ids must lie in"):
        target.forward([row], target.new_cache(1, 8))


def test_a_pass_of_nothing_gives_nothing(folder):
    target = load_target(folder, kernels="native")
    assert target.forward([], target.new_cache(1, 8)).shape == (0, 101)


def test_fast_and_invariant_are_one_path(folder):
    assert torch.equal(
        ragged(load_target(folder, kernels="native")),
        ragged(load_target(folder, kernels="native", numerics="invariant")),
    )


def test_unknown_models_are_refused_by_name_and_run_through_torch(tiny_gemma2):
    with pytest.raises(ValueError, match="kernels=native cannot be: the CPU kernels know .*got Gemma2For"):
        load_target(tiny_gemma2, kernels="native")
    assert load_target(tiny_gemma2, kernels="auto").native is None


def test_other_numbers_run_through_torch(tiny_llama):
    with pytest.raises(ValueError, match="run float32 on a CPU, got bfloat16 on cpu"):
        load_target(tiny_llama, kernels="native", dtype="bfloat16")
    assert load_target(tiny_llama, dtype="bfloat16").native is None
    assert load_target(tiny_llama, kernels="torch").native is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (LlamaConfig(**SIZES, hidden_act="gelu"), "silu gate, got hidden_act=gelu"),
        (LlamaConfig(**SIZES, mlp_bias=True), "an MLP and an output layer without bias"),
        (
            LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            "rotary positions default, linear, llama3, yarn, got dynamic",
        ),
        (GemmaConfig(**SIZES, head_dim=8), "got GemmaForCausalLM"),
    ],
    ids=["gate", "bias", "positions", "family"],
)
def test_what_the_kernels_do_not_compute_is_refused(config, reason):
    assert reason in (refusal(AutoModelForCausalLM.from_config(config)) or "")


def test_a_replaced_part_is_refused():
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES))
    model.model.layers[1].mlp.up_proj = torch.nn.Sequential(model.model.layers[1].mlp.up_proj)
    assert refusal(model) == "the CPU kernels know Linear, got Sequential"
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES))
    model.model.norm = torch.nn.LayerNorm(48)
    assert refusal(model) == "the CPU kernels know LlamaRMSNorm, got LayerNorm"
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES))
    model.model.norm.variance_epsilon = 1e-3
    assert refusal(model) == "the CPU kernels know one epsilon for all norms"


def test_kernels_that_fail_the_probe_are_left_out(tiny_llama, monkeypatch, caplog):
    """As if a model of a known class computed something else."""
    original = NativeDecoder.forward
    monkeypatch.setattr(NativeDecoder, "forward", lambda *args: original(*args) + 1.0)
    assert load_target(tiny_llama).native is None
    assert "the CPU kernels are left out: the target" in caplog.text
    with pytest.raises(ValueError, match="gives other logits in a flattened pass"):
        load_target(tiny_llama, kernels="native")


def test_a_machine_without_compiler_falls_back_and_says_so(tiny_llama, monkeypatch, caplog):
    def none(cache_dir):
        raise NoCompilerError("no C++ compiler was found")

    monkeypatch.setattr("dspark.models.native.binding.load_kernels", none)
    assert load_target(tiny_llama).native is None
    assert "no C++ compiler was found; passes run through torch's operations" in caplog.text
    with pytest.raises(ValueError, match="kernels=native cannot be: no C\\+\\+ compiler"):
        load_target(tiny_llama, kernels="native")
    assert choice.choose_kernels("torch", None) is None


def test_an_attention_asked_for_by_name_is_not_replaced(tiny_llama):
    assert load_target(tiny_llama, attention="sdpa").native is None
    with pytest.raises(ValueError, match="kernels=native has an attention of its own, got attention=sdpa"):
        load_target(tiny_llama, attention="sdpa", kernels="native")
    with pytest.raises(ValueError, match="got cuda_graphs=true; leave one of them out"):
        load_target(tiny_llama, cuda_graphs=True, kernels="native")
