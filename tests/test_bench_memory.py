"""The memory measurement sees what a run takes, and holds it against weights and cache."""

from __future__ import annotations

import math
import mmap
from pathlib import Path

import pytest

from experiments.bench import memory

pytestmark = pytest.mark.skipif(not memory.available(), reason="needs Linux's /proc")


def test_a_peak_is_seen_until_it_is_forgotten() -> None:
    size = 64 * 1024 * 1024
    memory._forget_peak()
    before = memory._resident("VmHWM")
    assert before - memory._resident("VmRSS") < size / 8
    with mmap.mmap(-1, size) as block:  # of its own: an allocator may have so much in stock
        for page in range(0, size, mmap.PAGESIZE):
            block[page] = 1
    assert memory._resident("VmHWM") - before > size * 7 / 8
    memory._forget_peak()
    assert memory._resident("VmHWM") - before < size / 8


def test_each_phase_is_held_against_weights_and_cache() -> None:
    used = memory.Memory(
        batch_size=16,
        num_new=64,
        weight_bytes=300,
        kv_bytes=100,
        baseline_bytes=7,
        load_peak_bytes=480,  # 480 / 400 = 1.2
        decode_peak_bytes=504,  # 504 / 400 = 1.26
        file_bytes=0,
    )
    load, decode = used.ratios()
    assert ("load" in load.name, "decode" in decode.name) == (True, True)
    assert math.isclose(load.value, 1.2)
    assert math.isclose(decode.value, 1.26)
    assert (load.passed, decode.passed) == (True, False)


def test_a_run_of_its_own_counts_the_bytes(tiny_llama: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts

    used = memory.measure_memory(str(tiny_llama), batch_size=2, num_new=4)
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    longest = max(map(len, encode_prompts(load_prompts(PromptSpec(num_requests=2)), tokenizer)))
    config = AutoConfig.from_pretrained(tiny_llama)
    # keys and values, float32, of every layer, for two rows of the longest prompt and four tokens
    a_token = 2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    assert used.kv_bytes == 2 * (longest + 4) * a_token
    # the file holds the weights, in float32, and a header
    file_bytes = (tiny_llama / "model.safetensors").stat().st_size
    assert 0 < used.weight_bytes <= file_bytes < used.weight_bytes + 10_000
    assert used.baseline_bytes > 50e6  # an interpreter with torch in it
    assert 0 <= used.decode_peak_bytes < 100e6  # a model of a few hundred kB


def test_a_run_that_fails_is_quoted(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no memory left >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(memory.sys, "executable", str(broken))
    with pytest.raises(RuntimeError, match="the memory run failed:\nno memory left"):
        memory.measure_memory(str(tiny_llama))


def test_a_target_that_is_not_there_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="model source 'nowhere at all' not found"):
        memory.measure_memory("nowhere at all")
