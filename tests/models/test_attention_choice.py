"""The attention that fits, or one line that says why what was asked for does not."""

import logging

import pytest
import torch
from transformers import Gemma2Config, GptOssConfig, LlamaConfig

from dspark.models import attention, attention_varlen
from dspark.models.attention_choice import check_page_size, choose_attention, kind_of
from dspark.models.target import load_target

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LLAMA = LlamaConfig(head_dim=64)


def choose(asked, *, numerics="fast", device=CPU, dtype=torch.float32, config=LLAMA):
    return choose_attention(asked, numerics=numerics, device=device, dtype=dtype, config=config)


def test_a_cpu_takes_sdpa_and_the_reference_by_name():
    assert choose("auto") == choose("sdpa") == attention.NAME
    assert choose("varlen_reference") == attention_varlen.REFERENCE_NAME
    assert choose("auto", numerics="invariant") == attention.EXACT_NAME
    with pytest.raises(
        ValueError, match="attention=varlen cannot serve here: it needs a CUDA device, got cpu"
    ):
        choose("varlen")


def test_invariant_numerics_bring_their_own():
    for asked in ("sdpa", "varlen", "varlen_reference"):
        with pytest.raises(ValueError, match=f"has an attention of its own, got attention={asked}"):
            choose(asked, numerics="invariant")


def test_cuda_takes_the_kernel_where_it_can_serve(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert choose("auto", device=CUDA, dtype=torch.bfloat16) == attention_varlen.NAME
    assert choose("sdpa", device=CUDA, dtype=torch.bfloat16) == attention.NAME
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("dtype", "config", "capability", "reason"),
    [
        (torch.float32, LLAMA, (9, 0), "bfloat16 and float16 only, got float32"),
        (torch.bfloat16, LLAMA, (7, 5), "it needs compute capability 8.0, got 7.5"),
        (torch.bfloat16, Gemma2Config(), (9, 0), "it has no soft cap, and a gemma2 target needs one"),
        (
            torch.bfloat16,
            GptOssConfig(),
            (9, 0),
            "it has no attention sinks, and a gpt_oss target needs them",
        ),
        (torch.bfloat16, LlamaConfig(head_dim=512), (9, 0), "at most 256 in multiples of 8, got 512"),
        (torch.bfloat16, LlamaConfig(head_dim=20), (9, 0), "at most 256 in multiples of 8, got 20"),
    ],
)
def test_auto_falls_back_with_one_line_and_asking_is_refused(
    dtype, config, capability, reason, monkeypatch, caplog
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    with caplog.at_level(logging.WARNING):
        assert choose("auto", device=CUDA, dtype=dtype, config=config) == attention.NAME
    (record,) = caplog.records
    assert record.getMessage().startswith("attention is sdpa instead of varlen: ")
    assert reason in record.getMessage()
    with pytest.raises(ValueError, match="attention=varlen cannot serve here") as caught:
        choose("varlen", device=CUDA, dtype=dtype, config=config)
    assert reason in str(caught.value)


def test_a_torch_without_the_call_falls_back(monkeypatch):
    from torch.nn.attention import varlen

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(varlen, "varlen_attn", lambda query, key, value: None)
    with pytest.raises(ValueError, match="lacks block_table, enable_gqa, num_splits"):
        choose("varlen", device=CUDA, dtype=torch.bfloat16)
    monkeypatch.delattr(varlen, "varlen_attn")
    with pytest.raises(ValueError, match=f"torch {torch.__version__} has no varlen_attn".replace("+", r"\+")):
        choose("varlen", device=CUDA, dtype=torch.bfloat16)


def test_models_that_the_call_cannot_serve_are_refused_at_load(tiny_gemma2, tiny_gpt_oss):
    for folder, reason in ((tiny_gemma2, "no soft cap"), (tiny_gpt_oss, "no attention sinks")):
        with pytest.raises(
            ValueError, match=f"attention=varlen_reference cannot serve here: it has {reason}"
        ):
            load_target(folder, attention="varlen_reference")


def test_pages_are_a_multiple_of_what_the_kernel_reads():
    assert check_page_size(attention.NAME, None) is None
    assert check_page_size(attention.NAME, 16) == 16
    assert check_page_size(attention_varlen.NAME, None) == 256
    assert check_page_size(attention_varlen.NAME, 512) == 512
    assert check_page_size(attention_varlen.REFERENCE_NAME, 16) == 16
    with pytest.raises(ValueError, match="reads pages in multiples of 256 tokens, got page_size=16"):
        check_page_size(attention_varlen.NAME, 16)


def test_a_draft_model_asks_for_its_targets_attention():
    for asked in ("sdpa", "varlen_reference"):
        assert kind_of(choose(asked)) == asked
    assert kind_of(attention_varlen.NAME) == "auto"
    assert kind_of(attention.EXACT_NAME) == "auto"
