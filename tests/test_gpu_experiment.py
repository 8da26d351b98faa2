"""`python -m experiments.gpu`: what runs without a device."""

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from experiments.gpu import __main__ as command
from experiments.gpu.measure import StepTime, copy_bandwidth, step_seconds
from experiments.gpu.report import bars, page
from experiments.gpu.shapes import SHAPES, Shape, random_target
from experiments.gpu.text import PATHS, Agreement, Way, agreements, compare

CPU = torch.device("cpu")
TINY = Shape(
    name="tiny",
    num_layers=2,
    hidden=32,
    intermediate=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab=64,
    tied=True,
    source="this test",
)


def test_without_a_device_it_says_so_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["--out", str(tmp_path / "results.md")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "error: device=cuda needs a CUDA device, and torch sees none here; use device=cpu or auto\n"
    )
    assert not list(tmp_path.iterdir())


def test_arguments_are_checked(capsys):
    options = command._parse(["--shapes", "1B", "8B", "--batch-sizes", "2", "--tokens", "1", "8"])
    assert (options.shapes, options.batch_sizes, options.tokens) == (["1B", "8B"], [2], [1, 8])
    for arguments, message in (
        (["--tokens", "0"], "must be >= 1"),
        (["--shapes", "70B"], "invalid choice: '70B'"),
        (["--context", "4090", "--tokens", "8"], "must fit the 4096 positions"),
    ):
        with pytest.raises(SystemExit) as caught:
            command._parse(arguments)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err


def test_parameters_of_a_shape_are_those_of_the_model():
    """By hand: attention 32*8*(2*4 + 2*2), MLP 3*32*48, two norms of 32; last norm 32, embedding 64*32."""
    layer = 32 * 8 * 12 + 3 * 32 * 48 + 2 * 32
    assert TINY.num_parameters == 2 * layer + 32 + 64 * 32
    assert (
        random_target(TINY, device=CPU, dtype=torch.float32, attention="sdpa").num_parameters
        == TINY.num_parameters
    )
    assert TINY.read_bytes == 2 * TINY.num_parameters  # the embedding is the head
    for shape in SHAPES:
        config = LlamaConfig(
            num_hidden_layers=shape.num_layers,
            hidden_size=shape.hidden,
            intermediate_size=shape.intermediate,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            vocab_size=shape.vocab,
            tie_word_embeddings=shape.tied,
        )
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        assert sum(p.numel() for p in model.parameters()) == shape.num_parameters
    # published: 1.24, 3.21 and 8.03 billion parameters
    assert [round(shape.num_parameters / 1e9, 2) for shape in SHAPES] == [1.24, 3.21, 8.03]
    assert SHAPES[2].read_bytes == 2 * (SHAPES[2].num_parameters - 128_256 * 4096)


def test_steps_are_measured_on_a_tiny_shape():
    target = random_target(
        TINY, device=CPU, dtype=torch.float32, attention="varlen_reference", max_context=64
    )
    assert step_seconds(target, batch_size=3, row_tokens=2, context=9, repeats=2) > 0
    assert copy_bandwidth(CPU, num_bytes=1 << 20, repeats=3) > 1e6


def test_text_of_every_path_is_compared_with_the_first_of_its_dtype(tiny_llama):
    ways = [
        Way(name="plain", dtype="float32", attention="sdpa", cuda_graphs=False, depth=0),
        Way(name="drafts", dtype="float32", attention="varlen_reference", cuda_graphs=False, depth=3),
        Way(name="half", dtype="bfloat16", attention="sdpa", cuda_graphs=False, depth=0),
    ]
    rows = agreements(tiny_llama, [[1, 2, 3], [4, 5]], device="cpu", paths=ways, num_new=6)
    assert rows == [
        Agreement(path=name, same=2, num_prompts=2, first_difference=None)
        for name in ("plain", "drafts", "half")
    ]
    assert {way.dtype for way in PATHS} == {"float32", "bfloat16"}


def test_the_first_difference_is_the_earliest():
    assert compare("x", [(1, 2, 3), (4, 5, 6), (7,)], [(1, 2, 9), (4, 0, 6), (7,)]) == Agreement(
        path="x", same=1, num_prompts=3, first_difference=1
    )
    assert compare("x", [(1, 2)], [(1, 2, 3)]).first_difference == 2


def step(graphs, batch_size, row_tokens, median_s):
    return StepTime(
        shape="8B",
        graphs=graphs,
        batch_size=batch_size,
        row_tokens=row_tokens,
        context=512,
        median_s=median_s,
        floor_s=0.004,
    )


STEPS = [step(True, 1, 1, 0.0048), step(True, 1, 8, 0.006), step(False, 1, 1, 0.02), step(True, 4, 1, 0.005)]


def test_bars_by_hand():
    decode, verify = bars(STEPS)
    assert (decode.value, decode.passed) == (pytest.approx(4.8 / 4), True)  # <= 1.25
    assert (verify.value, verify.passed) == (pytest.approx(6 / 4.8), False)  # 1.25 > 1.1
    assert bars(STEPS[2:]) == []  # without graphs at batch 1 there is nothing to hold against a bar


def test_the_page_shows_what_was_measured():
    texts = [
        Agreement(path="bfloat16, varlen", same=16, num_prompts=16, first_difference=None),
        Agreement(path="bfloat16, varlen, graphs", same=15, num_prompts=16, first_difference=40),
    ]
    text = page({"device": "a device"}, 4.1e12, STEPS, texts, {"8B": "a source"})
    for line in (
        "- device: a device",
        "- measured copy bandwidth: 4100 GB/s (bytes read plus bytes written)",
        "| 8B: decode step / (weight bytes / copy bandwidth) | 1.200 | <= 1.25 | yes |",
        "| 8B: pass of 8 tokens / of 1 | 1.250 | <= 1.1 | NO |",
        "| 8B | no | 1 | 1 | 512 | 20.000 | 4.000 | 5.00 |",
        "| bfloat16, varlen | 16/16 | none |",
        "| bfloat16, varlen, graphs | 15/16 | after 40 tokens |",
    ):
        assert line in text.splitlines()
    assert "8B is that of a source" in text


def test_the_whole_command_on_stand_ins(monkeypatch, tmp_path, tiny_llama, capsys):
    """Everything but the device: a tiny shape on the CPU, with the reference for the kernel."""
    monkeypatch.setattr(command, "resolve_device", lambda device: CPU)
    monkeypatch.setattr(command, "SHAPES", (TINY,))
    monkeypatch.setattr(command, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(command, "machine", lambda device: {"device": "none"})
    monkeypatch.setattr(
        command,
        "random_target",
        lambda shape, *, device, cuda_graphs: random_target(
            shape, device=device, dtype=torch.float32, attention="varlen_reference"
        ),
    )
    monkeypatch.setattr(command, "agreements", lambda folder, prompts, *, device: [])
    monkeypatch.setattr(command, "resolve_source", lambda name: tiny_llama)
    monkeypatch.setattr(command, "_prompts", lambda: [])
    out = tmp_path / "docs" / "gpu-results.md"
    arguments = ["--batch-sizes", "1", "2", "--tokens", "1", "8", "--context", "16", "--repeats", "1"]
    assert command.main([*arguments, "--out", str(out)]) in (0, 1)
    rows = [line for line in out.read_text().splitlines() if line.startswith("| tiny |")]
    cells = [[cell.strip() for cell in row.split("|")[2:5]] for row in rows]
    assert cells == [[g, b, t] for g in ("yes", "no") for b in ("1", "2") for t in ("1", "8")]
    assert "written to" in capsys.readouterr().out
