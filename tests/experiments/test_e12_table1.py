"""e12: the printed table, complete settings for every cell, DeepSpec's prompts, and statuses from numbers."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dspark.cli.main import main
from dspark.models.synthetic import byte_tokenizer
from experiments.e12_table1 import needs
from experiments.e12_table1.cells import PROTOCOL, SEED, SETS, Cell, PromptSet, cells, chosen, published
from experiments.e12_table1.evaluate import Measured
from experiments.e12_table1.experiment import EXPERIMENT, NOT_CHOSEN, claims
from experiments.e12_table1.prompts import first_turns, write_prompts
from experiments.reproduce import Context, Status
from tests.experiments.stand_ins import run


def _context(folder: Path, **settings: str) -> Context:
    values = {setting.name: setting.default for setting in EXPERIMENT.settings}
    return Context(folder=folder, console=Console(quiet=True), settings={**values, **settings})


def test_the_table_is_the_printed_one() -> None:
    table = published()
    assert len(table) == 4 * 3 * 9
    # corners and middle, read off the paper
    assert table[Cell("Qwen3-4B", "Eagle3", "GSM8K")] == 5.14
    assert table[Cell("Qwen3-4B", "DSpark", "GSM8K")] == 6.11
    assert table[Cell("Qwen3-8B", "DFlash", "HumanEval")] == 4.64
    assert table[Cell("Qwen3-14B", "DSpark", "Arena-Hard")] == 3.13
    assert table[Cell("Gemma4-12B", "DSpark", "Arena-Hard")] == 2.92
    for cell in table:
        if cell.drafter == "DSpark":
            assert table[cell] > table[Cell(cell.target, "DFlash", cell.prompts)]
    assert len(cells()) == 3 * 3 * 9
    assert [claim.paper for claim in EXPERIMENT.claims] == [table[cell] for cell in cells()]


@pytest.mark.parametrize("cell", chosen("*/*/GSM8K"), ids=lambda cell: f"{cell.target}/{cell.drafter}")
def test_the_settings_of_a_cell_are_complete(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["run", *cell.models, *PROTOCOL, "workload.path=gsm8k.jsonl", "--cfg", "job", "--resolve"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    size = cell.target.removeprefix("Qwen3-").lower()
    names = {
        "Eagle3": f"deepseek-ai/eagle3_qwen3_{size}_ttt7",
        "DFlash": f"deepseek-ai/dflash_qwen3_{size}_block7",
        "DSpark": f"deepseek-ai/dspark_qwen3_{size}_block7",
    }
    for line in (
        f"source: {names[cell.drafter]}",
        f"source: Qwen/{cell.target}",
        "depth: 7",
        "dtype: bfloat16",
    ):
        assert line in printed.out
    assert "???" not in printed.out


def test_cells_are_chosen_by_pattern() -> None:
    assert chosen("*/*/*") == cells()
    assert chosen("Qwen3-4B/DSpark/GSM8K") == (Cell("Qwen3-4B", "DSpark", "GSM8K"),)
    found = chosen("Qwen3-4B/*/MATH, */DSpark/MATH")
    assert {cell.prompts for cell in found} == {"MATH"}
    assert len(found) == 3 + 2
    with pytest.raises(ValueError, match="got 'Qwen3-5B/DSpark/GSM8K'"):
        chosen("Qwen3-5B/DSpark/GSM8K")


def test_prompts_are_those_of_deepspec(tmp_path: Path) -> None:
    lines = [json.dumps({"turns": [f"turn {i}", "never used"]}) for i in range(6)]
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert first_turns(path, 6) == [(i + 1, f"turn {i}") for i in range(6)], "short enough: as they come"
    order = list(range(6))
    random.Random(SEED).shuffle(order)
    assert first_turns(path, 4) == [(i + 1, f"turn {i}") for i in order[:4]]
    prompts = PromptSet(file="set.jsonl", num_prompts=4)
    out = write_prompts(tmp_path, prompts, byte_tokenizer(), tmp_path / "out" / "set.jsonl")
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [each["id"] for each in told] == [f"set-{i + 1}" for i in order[:4]]
    opened = f"<|im_start|>user\nturn {order[0]}<|im_end|>\n<|im_start|>assistant\n"
    assert told[0]["prompt"] == opened


def test_caps_are_those_of_deepspec() -> None:
    assert sum(each.num_prompts for each in SETS.values()) == 3030


def test_without_a_gpu_nothing_is_run_and_every_claim_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (result,) = run(tmp_path, EXPERIMENT)
    assert result.verdict == "not run here"
    assert result.summary.startswith("torch sees no CUDA device here")
    assert len(result.claims) == 81
    assert {claim.note for claim in result.claims} == {result.summary}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    _, data, hub = (need.missing for need in needs.NEEDS)
    assert "give eval_data=DIR" in (data(_context(tmp_path, eval_data=str(tmp_path))) or "")
    (tmp_path / "mbpp.jsonl").touch()
    assert data(_context(tmp_path, eval_data=str(tmp_path))) is None
    # the tests are offline, so the first checkpoint is what cannot be had
    one = _context(tmp_path, table1_cells="Qwen3-14B/DFlash/MATH")
    assert (hub(one) or "").startswith("Qwen/Qwen3-14B cannot be had from the hub: ")
    assert "\n" not in (hub(one) or "")


def test_statuses_follow_from_the_numbers() -> None:
    near, far, absent = cells()[0], cells()[1], cells()[2]
    paper = published()
    found = {
        near: Measured(acceptance_length=1.02 * paper[near], num_requests=500, num_rounds=9),
        far: Measured(acceptance_length=0.96 * paper[far], num_requests=500, num_rounds=9),
    }
    told = claims(found, {absent: "no such file"}, quick=False)
    assert [claim.what for claim in told] == [claim.what for claim in EXPERIMENT.claims]
    assert [claim.status for claim in told[:2]] == [Status.REPRODUCED, Status.NOT_REPRODUCED]
    assert told[0].note == "500 prompts, 9 rounds"
    assert told[2].note == "no such file"
    assert {claim.note for claim in told[3:]} == {NOT_CHOSEN}
    assert {claim.status for claim in told[2:]} == {Status.NOT_RUN}


def test_a_shortened_run_goes_from_prompts_to_lengths_with_every_kind_of_drafter(shortened) -> None:
    result, folder = shortened("e12_table1")
    measured = [claim for claim in result.claims if claim.ours is not None]
    assert [claim.what for claim in measured] == [
        f"accepted length, Qwen3-4B, {drafter}, GSM8K" for drafter in ("Eagle3", "DFlash", "DSpark")
    ]
    for claim, drafter in zip(measured, ("Eagle3", "DFlash", "DSpark"), strict=True):
        (row,) = json.loads((folder / "Qwen3-4B" / drafter / "GSM8K" / "summary.json").read_text())["rows"]
        assert claim.ours == row["acceptance_length"] >= 1
        assert (row["verification"], row["temperature"], row["num_requests"]) == ("rejection", 1.0, 2)
