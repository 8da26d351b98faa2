"""`dspark roofline`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dspark.analysis.roofline import modelled_batches, modelled_cells
from dspark.config.paths import config_dir
from dspark.cost.hardware import DEVICES, device_to_json
from dspark.cost.named_shapes import SHAPES
from dspark.cost.roofline import roofline_cost
from dspark.cost.shape_from_config import MODEL_TYPES
from tests.cli.conftest import read_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Result

OUT = "hydra.run.dir=out"
FEW = ("batch_sizes=[1,64]", "depths=[0,4]", OUT)


def _cells() -> dict[tuple[int, int], dict[str, Any]]:
    cells = read_json(Path("out/roofline.json"))["cells"]
    return {(cell["batch_size"], cell["depth"]): cell for cell in cells}


@pytest.fixture
def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawing, which takes most of a test's time and has one of its own."""
    monkeypatch.setattr("dspark.analysis.roofline_figure.draw_roofline", lambda *_, **__: "no figure")


@pytest.mark.usefixtures("no_figure")
class TestResults:
    def test_qwen3_8b_on_h200(self, dspark: Callable[..., Result]) -> None:
        result = dspark("roofline", "target=qwen3_8b", "hardware=h200", OUT)
        assert (result.code, result.err) == (0, "")
        for shown in (
            "Qwen3-8B: 36 layers, hidden 4096, 8.19 G parameters, 7.57 G multiplied a token",
            "H200 SXM: 989 TFLOP/s bfloat16, 4.8 TB/s, 141 GB",
            "16.38 GB; a pass of one token reads 15.14 GB",
            "147.5 kB a token, 151 MB a row at context 1024",
            "206.0 FLOP a byte",  # 989 / 4.8
            "tokens at batch 1, context 1024",
            "modelled_step_ms",
            "modelled_tokens_per_s",
            "data sheet",
        ):
            assert shown in result.out, shown
        cells = _cells()
        assert len(cells) == 10 * 9
        # see tests/cost/test_roofline.py for the arithmetic
        assert cells[1, 0]["modelled_step_s"] == pytest.approx(3.185e-3, rel=0.01)
        assert cells[64, 0]["modelled_step_s"] == pytest.approx(5.169e-3, rel=0.01)
        assert cells[64, 8]["modelled_step_s"] == pytest.approx(9.169e-3, rel=0.01)
        assert [cells[64, d]["modelled_bound"] for d in (0, 8)] == ["memory", "compute"]

    def test_rates_follow_the_acceptance(self, dspark: Callable[..., Result]) -> None:
        assert dspark("roofline", "acceptance=0.5", *FEW).code == 0
        plain, deep = (_cells()[64, depth] for depth in (0, 4))
        # 1 + 1/2 + 1/4 + 1/8 + 1/16 tokens a row
        assert deep["modelled_tokens_per_step"] == 64 * 1.9375
        assert deep["modelled_tokens_per_s"] == pytest.approx(64 * 1.9375 / deep["modelled_step_s"])
        assert plain["modelled_tokens_per_s"] == pytest.approx(64 / plain["modelled_step_s"])
        assert deep["pass_tokens"] == 320
        # every time and rate says that it is modelled
        known = {"batch_size", "depth", "context", "pass_tokens"}
        assert all(key.startswith("modelled_") for key in plain.keys() - known)

    def test_the_summary_has_a_row_a_batch_size(self, dspark: Callable[..., Result]) -> None:
        assert dspark("roofline", *FEW).code == 0
        summary, details = read_json(Path("out/summary.json")), read_json(Path("out/roofline.json"))
        assert summary["complete"]
        assert [row["batch_size"] for row in summary["rows"]] == [1, 64]
        row = summary["rows"][1]
        assert (row["target"], row["hardware"], row["dtype"]) == ("Qwen3-8B", "H200 SXM", "bfloat16")
        assert row["modelled_memory_bound_depth"] == row["modelled_optimal_pass_tokens"] // 64 - 1
        best = max((_cells()[64, d] for d in (0, 4)), key=lambda cell: cell["modelled_tokens_per_s"])
        assert row["modelled_best_depth"] == best["depth"]
        assert details["hardware"] == device_to_json(DEVICES["h200"])
        assert details["target"]["num_parameters"] == SHAPES["qwen3_8b"].num_parameters
        assert read_json(Path("out/provenance.json"))["command"].startswith("dspark roofline ")

    @pytest.mark.parametrize("name", SHAPES)
    def test_every_model_has_a_roofline(self, name: str) -> None:
        roofline = roofline_cost(name, "b200")
        cells = modelled_cells(roofline, batch_sizes=[1, 8], depths=[0, 2], context=100, acceptance=1.0)
        assert [(c["batch_size"], c["depth"]) for c in cells] == [(1, 0), (1, 2), (8, 0), (8, 2)]
        assert [c["modelled_tokens_per_step"] for c in cells] == [1, 3, 8, 24]
        assert all(c["modelled_flops_per_s"] <= roofline.peak_flops for c in cells)
        for row in modelled_batches(roofline, cells):
            # at 100 cached tokens all of them are memory bound far beyond eight rows
            assert row["modelled_optimal_pass_tokens"] >= 100
            assert row["modelled_best_depth"] == 2

    def test_a_drafter_takes_time(self, dspark: Callable[..., Result]) -> None:
        assert dspark("roofline", *FEW).code == 0
        free = _cells()[1, 4]["modelled_step_s"]
        assert dspark("roofline", "draft=smollm2", *FEW).code == 0
        cell = _cells()[1, 4]
        assert cell["modelled_draft_s"] > 0
        assert cell["modelled_step_s"] == pytest.approx(free + cell["modelled_draft_s"])

    def test_what_does_not_fit_is_said(self, dspark: Callable[..., Result]) -> None:
        result = dspark("roofline", "target=deepseek_v4_flash", *FEW)
        assert "6 of 256 a token" in result.out
        assert "the weights do not fit: they take 568.7 GB, and the memory is 141 GB" in result.out
        result = dspark("roofline", "target=llama3_1_8b", "context=100000", *FEW)
        # (141 - 16.06) GB over 131072 bytes a token
        assert "there is room for 9 rows of this context" in result.out
        assert " fit" not in dspark("roofline", *FEW).out


def test_the_figure_is_a_picture_of_some_size(dspark: Callable[..., Result]) -> None:
    assert dspark("roofline", *FEW).code == 0
    written = Path("out/figures/roofline.png").read_bytes()
    assert written.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", written[16:24])
    assert width > 1000
    assert height > 1000


@pytest.mark.usefixtures("no_figure")
class TestChoices:
    def test_a_folder_without_weights(self, dspark: Callable[..., Result], tmp_path: Path) -> None:
        folder = tmp_path / "mine"
        folder.mkdir()
        config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
        config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
        (folder / "config.json").write_text(json.dumps(config))
        for more in ([], ["target=pretrained"]):
            assert dspark("roofline", f"target.source={folder}", *more, *FEW).code == 0
            shape = read_json(Path("out/roofline.json"))["target"]
            # 2 layers of 64 x 16 x (4 + 2 + 2 + 4) + 3 x 64 x 96 and two norms, a norm, two embeddings
            assert shape["num_parameters"] == 2 * (64 * 16 * 12 + 3 * 64 * 96 + 128) + 64 + 2 * 6400
            assert shape["name"] == "mine"

    def test_a_machine_of_ones_own(self, dspark: Callable[..., Result], tmp_path: Path) -> None:
        machine = device_to_json(DEVICES["h100"]) | {"name": "mine", "memory_bandwidth": 1e12}
        (tmp_path / "mine.json").write_text(json.dumps(machine))
        result = dspark("roofline", "hardware=mine.json", *FEW)
        assert "mine: 989 TFLOP/s bfloat16, 1 TB/s" in result.out

    def test_this_machine_is_measured(self, dspark: Callable[..., Result]) -> None:
        result = dspark("roofline", "target=smollm2", "hardware=cpu", "dtype=float32", *FEW)
        assert result.code == 0
        assert "measured: " in result.out
        measured = read_json(Path("out/roofline.json"))["hardware"]
        assert measured["peak_flops"]["float32"] > 0

    def test_a_sweep_over_machines(self, dspark: Callable[..., Result]) -> None:
        sweep = ("--multirun", "hardware=h100,h200", "hydra.sweep.dir=out", *FEW[:2])
        assert dspark("roofline", *sweep).code == 0
        found = [read_json(Path(f"out/{job}/roofline.json"))["hardware"]["name"] for job in range(2)]
        assert found == ["H100 SXM", "H200 SXM"]

    def test_the_help_names_every_choice(self, dspark: Callable[..., Result]) -> None:
        result = dspark("roofline", "--help")
        assert all(name in result.out for name in [*SHAPES, *DEVICES, *MODEL_TYPES, "cpu"])
        settings = yaml.safe_load((config_dir() / "roofline.yaml").read_text())
        assert all(f"{key}=" in result.out for key in settings if key not in ("hydra", "target"))


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["target=qwen3-8b"], "target: no model shape is named 'qwen3-8b': did you mean 'qwen3_8b'?"),
            (["hardware=H2000"], "hardware: no hardware is named 'H2000': did you mean 'h200'?"),
            (["hardware=mine.json"], "hardware: cannot read the hardware file mine.json"),
            (["target.source=nowhere"], "target.source: cannot read nowhere/config.json"),
            (["target=qwen3_8b", "target.source=x"], "target=qwen3_8b and target.source=... are two targets"),
            (["target=pretrained"], "target=pretrained needs target.source=DIR"),
            (["draft=smollm"], "draft: no model shape is named 'smollm': did you mean 'smollm2'?"),
            (["dtype=fp8"], "dtype must be one of float32, bfloat16, float8, got 'fp8'"),
            (["hardware=a100", "dtype=float8"], "A100 80GB SXM has no peak FLOP/s for dtype float8"),
            (["context=-1"], "context must be >= 0, got -1"),
            (["batch_sizes=[]"], "batch_sizes must list at least one"),
            (["batch_sizes=[0,1]"], "batch_sizes must be different numbers >= 1, got [0, 1]"),
            (["depths=[1,1]"], "depths must be different numbers >= 0, got [1, 1]"),
            (["acceptance=1.5"], "acceptance must be in [0, 1], got 1.5"),
            (["mfu=2"], "mfu must be in (0, 1], got 2"),
            (["contxt=5"], "contxt"),
            (["engine.seed=1"], "engine"),
        ],
    )
    def test_a_mistake_is_one_line(
        self, dspark: Callable[..., Result], arguments: list[str], message: str
    ) -> None:
        assert message in dspark("roofline", *arguments, OUT).error
        assert not Path("out/summary.json").exists()
