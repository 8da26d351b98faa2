"""The tiny models are reproducible, behave like language models, and exercise what attention may miss."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from dspark.models.synthetic import EOS_ID, NUM_TOKENS, SPECIAL_TOKENS, Family, make_synthetic_target

FAMILIES = get_args(Family)
TEXT = "The quick brown fox jumps over the lazy dog. Zwölf Boxkämpfer!"


def _load(folder: Path, **overrides: Any) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **overrides)


@torch.inference_mode()
def _logits(model: Any, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_the_folder_is_loaded(family: Family, tmp_path: Path) -> None:
    folder = make_synthetic_target(tmp_path, family=family)
    stored, model = load_file(folder / "model.safetensors"), _load(folder)
    assert stored.keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, stored[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_seed_decides_the_weights_and_nothing_else_does(family: Family, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    first = make_synthetic_target(tmp_path / "1", family=family, seed=3)
    assert torch.equal(torch.get_rng_state(), before), "the global generator was used"
    torch.manual_seed(12345)
    again = make_synthetic_target(tmp_path / "2", family=family, seed=3)
    other = make_synthetic_target(tmp_path / "3", family=family, seed=4)
    weights = (first / "model.safetensors").read_bytes()
    assert (again / "model.safetensors").read_bytes() == weights
    assert (other / "model.safetensors").read_bytes() != weights


@pytest.mark.parametrize("family", FAMILIES)
def test_distribution_is_neither_flat_nor_one_hot_and_follows_the_context(
    family: Family, tmp_path: Path
) -> None:
    model = _load(make_synthetic_target(tmp_path, family=family))
    ids = list(TEXT.encode())
    logits = _logits(model, ids)
    log_p = logits.log_softmax(-1)
    perplexity = (-(log_p.exp() * log_p).sum(-1)).exp().mean()
    assert 3 < perplexity < NUM_TOKENS / 3
    assert len(set(logits.argmax(-1).tolist())) > len(ids) / 4
    changed = [ids[0] + 1, *ids[1:]]
    assert (_logits(model, changed)[4] - logits[4]).abs().max() > 0.05, "position 4 does not see token 0"


@pytest.mark.parametrize(
    ("family", "override"),
    [
        ("gemma2", {"attn_logit_softcapping": None}),
        ("gemma2", {"sliding_window": 512}),
        ("gemma2", {"query_pre_attn_scalar": 24}),
        ("gemma3", {"sliding_window": 512}),
        ("gemma3", {"query_pre_attn_scalar": 24}),
        ("gpt_oss", {"sliding_window": 512}),
    ],
)
def test_what_an_attention_function_may_overlook_changes_the_logits(
    family: Family, override: dict[str, Any], tmp_path: Path
) -> None:
    folder, ids = make_synthetic_target(tmp_path, family=family), list(TEXT.encode())
    difference = (_logits(_load(folder), ids) - _logits(_load(folder, **override), ids)).abs().max()
    assert difference > 0.05, f"{override} makes no difference, so a test could not see it"


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("qwen3", "q_norm.weight"),
        ("qwen3", "k_norm.weight"),
        ("qwen3", "v_proj.bias"),
        ("gemma3", "q_norm.weight"),
        ("gpt_oss", "sinks"),
    ],
)
def test_parts_that_some_families_lack_matter(family: Family, part: str, tmp_path: Path) -> None:
    model, ids = _load(make_synthetic_target(tmp_path, family=family)), list(TEXT.encode())
    whole = _logits(model, ids)
    without = {
        name: torch.zeros_like(w) if name.endswith(part) else w for name, w in model.state_dict().items()
    }
    model.load_state_dict(without)
    assert (_logits(model, ids) - whole).abs().max() > 0.05


def test_noise_makes_a_drafter_that_agrees_sometimes(tiny_llama: Path, tiny_llama_drafter: Path) -> None:
    ids = list(TEXT.encode())
    target, drafter = (_logits(_load(folder), ids).argmax(-1) for folder in (tiny_llama, tiny_llama_drafter))
    assert 0.2 < (target == drafter).float().mean() < 0.8


def test_token_is_byte_and_text_comes_back(tiny_llama: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    assert tokenizer(TEXT).input_ids == list(TEXT.encode())
    assert tokenizer.decode(list(TEXT.encode())) == TEXT
    assert len(tokenizer) == NUM_TOKENS
    assert [tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS] == [256, 257, 258]
    assert tokenizer.decode([65, EOS_ID, 66], skip_special_tokens=True) == "AB"


def test_chat_template_marks_turns_with_special_tokens(tiny_llama: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    chat = [{"role": "user", "content": "Hi"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert ids == [257, *b"user\nHi", 258, *b"\n", 257, *b"assistant\n"]


def test_config_and_tokenizer_agree_on_the_end(tiny_gemma3: Path) -> None:
    model, tokenizer = _load(tiny_gemma3), AutoTokenizer.from_pretrained(tiny_gemma3)
    assert (
        model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id == EOS_ID
    )


def test_sizes_are_those_asked_for(tmp_path: Path) -> None:
    folder = make_synthetic_target(
        tmp_path, family="gemma3", vocab_size=17, num_layers=3, hidden_size=96, max_context=40
    )
    config = _load(folder).config
    sizes = (config.vocab_size, config.num_hidden_layers, config.hidden_size, config.max_position_embeddings)
    assert sizes == (17, 3, 96, 40)
    assert config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    assert config.eos_token_id == 0
    assert not (folder / "tokenizer.json").exists(), "17 tokens cannot spell bytes"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"family": "mamba"}, "family must be one of llama, qwen3, .*, got 'mamba'"),
        ({"vocab_size": 1}, "vocab_size must be >= 2, got 1"),
        ({"num_layers": 0}, "num_layers must be >= 1, got 0"),
        ({"hidden_size": 48}, "hidden_size must be a multiple of 32, got 48"),
        ({"noise": -0.1}, r"noise must be finite and >= 0, got -0\.1"),
    ],
)
def test_impossible_sizes_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        make_synthetic_target(tmp_path, **arguments)
