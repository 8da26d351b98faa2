"""Runs cells by `dspark run`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from experiments.e12_table1.cells import DRAFTERS, PROTOCOL, SETS, Cell, chosen
from experiments.e12_table1.needs import CELLS, data_folder
from experiments.e12_table1.prompts import write_prompts

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.reproduce import Context

STAND_IN_CELLS = tuple(Cell("Qwen3-4B", drafter, "GSM8K") for drafter in DRAFTERS)
"""Of a shortened run, in which tiny models stand for the checkpoints."""
STAND_IN = ("sampling.max_new_tokens=12", "engine.max_batch_size=2")
STAND_IN_PROMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a cell came to."""

    acceptance_length: float
    num_requests: int
    num_rounds: int  # that drafted


def evaluate(context: Context) -> tuple[dict[Cell, Measured], dict[Cell, str]]:
    """What was measured, and why other cells that were asked for were not; what has ended is kept."""
    wanted = STAND_IN_CELLS if context.quick else chosen(context.settings[CELLS.name] or "")
    data = _stand_in_data(context) if context.quick else data_folder(context)
    found, absent = {}, {}
    for number, cell in enumerate(wanted, start=1):
        if not (data / SETS[cell.prompts].file).is_file():
            absent[cell] = f"{data} has no {SETS[cell.prompts].file}"
            continue
        context.console.print(f"  {cell.name} ({number} of {len(wanted)})", markup=False)
        found[cell] = _measure(context, cell, data)
    return found, absent


def _measure(context: Context, cell: Cell, data: Path) -> Measured:
    from dspark.analysis.frames import rows_frame
    from experiments.reproduce.commands import dspark

    folder = context.folder / cell.target / cell.drafter / cell.prompts
    if not _has_ended(folder):
        prompts = _prompts(context, cell, data)
        dspark(["run", *_models(context, cell), f"workload.path={prompts}"], folder)
    (row,) = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["rows"]
    return Measured(
        acceptance_length=row["acceptance_length"],
        num_requests=row["num_requests"],
        num_rounds=int((rows_frame(folder)["drafted"] > 0).sum()),
    )


def _has_ended(folder: Path) -> bool:
    path = folder / "summary.json"
    return path.is_file() and json.loads(path.read_text(encoding="utf-8"))["complete"]


def _models(context: Context, cell: Cell) -> list[str]:
    """All settings of a cell but its prompts."""
    if not context.quick:
        return [*cell.models, *PROTOCOL]
    from experiments.drafting.stand_in import make_stand_in

    folder = make_stand_in(cell.drafter.lower(), context.folder / "stand_ins")
    tiny = ["debug=smoke", f"drafter={DRAFTERS[cell.drafter][0]}", f"drafter.source={folder}"]
    return [*tiny, *PROTOCOL, *STAND_IN]


def _prompts(context: Context, cell: Cell, data: Path) -> Path:
    """The cell's prompts in its target's template; the same for all drafters."""
    from transformers import AutoTokenizer

    from dspark.models.sources import resolve_source

    path = context.folder / cell.target / "prompts" / SETS[cell.prompts].file
    if context.quick:
        from dspark.models.synthetic import byte_tokenizer

        tokenizer = byte_tokenizer()
    else:
        tokenizer = AutoTokenizer.from_pretrained(resolve_source(cell.target_id))
    return write_prompts(data, SETS[cell.prompts], tokenizer, path)


def _stand_in_data(context: Context) -> Path:
    """A folder with a few of the built-in prompts in the place of the sets."""
    folder = context.folder / "data"
    folder.mkdir(exist_ok=True)
    written = (resources.files("dspark.workload") / "data" / "math.jsonl").read_text(encoding="utf-8")
    lines = written.splitlines(keepends=True)[:STAND_IN_PROMPTS]
    for cell in STAND_IN_CELLS:
        (folder / SETS[cell.prompts].file).write_text("".join(lines), encoding="utf-8")
    return folder
