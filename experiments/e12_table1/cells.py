"""The cells of table 1: the printed numbers, checkpoints, sets, and the settings of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK = 7
SEED = 980406  # DeepSpec's
BATCH_SIZE = 32  # theirs is 1; acceptance does not depend on it
TARGETS: Mapping[str, str] = {
    "Qwen3-4B": "Qwen/Qwen3-4B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen3-14B": "Qwen/Qwen3-14B",
}
"""Hub ids by the names of the table."""
DRAFTERS: Mapping[str, tuple[str, str]] = {
    "Eagle3": ("eagle3", "deepseek-ai/eagle3_{}_ttt7"),
    "DFlash": ("block", "deepseek-ai/dflash_{}_block7"),
    "DSpark": ("block", "deepseek-ai/dspark_{}_block7"),
}
"""Option of the group drafter, and hub id for a target such as qwen3_4b."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """A set of DeepSpec's evaluation: its file, and how many prompts are taken."""

    file: str
    num_prompts: int  # of a longer file, after a shuffle by SEED


SETS: Mapping[str, PromptSet] = {
    "GSM8K": PromptSet(file="gsm8k.jsonl", num_prompts=500),
    "MATH": PromptSet(file="math500.jsonl", num_prompts=500),
    "AIME25": PromptSet(file="aime25.jsonl", num_prompts=30),
    "MBPP": PromptSet(file="mbpp.jsonl", num_prompts=256),
    "HumanEval": PromptSet(file="humaneval.jsonl", num_prompts=164),
    "LCB": PromptSet(file="livecodebench.jsonl", num_prompts=500),
    "MT-Bench": PromptSet(file="mt-bench.jsonl", num_prompts=80),
    "Alpaca": PromptSet(file="alpaca.jsonl", num_prompts=500),
    "Arena-Hard": PromptSet(file="arena-hard-v2.jsonl", num_prompts=500),
}


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A place of the table."""

    target: str
    drafter: str
    prompts: str  # the set

    @property
    def name(self) -> str:
        """What the setting ``cells`` calls it."""
        return f"{self.target}/{self.drafter}/{self.prompts}"

    @property
    def target_id(self) -> str:
        """The target's hub id."""
        return TARGETS[self.target]

    @property
    def drafter_id(self) -> str:
        """The drafter's hub id."""
        return DRAFTERS[self.drafter][1].format(self.target.lower().replace("-", "_"))

    @property
    def models(self) -> list[str]:
        """Settings that choose target and drafter, on a GPU."""
        return [
            *("target=pretrained", f"target.source={self.target_id}"),
            *("target.dtype=bfloat16", "target.device=cuda"),
            *(f"drafter={DRAFTERS[self.drafter][0]}", f"drafter.source={self.drafter_id}"),
        ]


PROTOCOL = (
    *("policy=fixed", f"policy.depth={BLOCK}", "verification=rejection", "sampling.temperature=1.0"),
    *("sampling.max_new_tokens=2048", f"engine.max_batch_size={BATCH_SIZE}", f"engine.seed={SEED}"),
    *("workload.chat_template=false", "workload.num_requests=null", "tracker=none"),
)
"""Settings of `dspark run` that are the same in all cells; prompts come with their template."""


def published() -> dict[Cell, float]:
    """All printed accepted lengths, bonus token included, also of targets that are not run."""
    table = json.loads((Path(__file__).parent / "table1.json").read_text(encoding="utf-8"))
    return {
        Cell(line["target"], line["drafter"], prompts): length
        for line in table["lengths"]
        for prompts, length in zip(table["sets"], line["by_set"], strict=True)
    }


def cells() -> tuple[Cell, ...]:
    """The cells that can be run, in the order of the table."""
    return tuple(cell for cell in published() if cell.target in TARGETS)


def chosen(patterns: str) -> tuple[Cell, ...]:
    """The cells whose names fit one of the patterns, such as ``Qwen3-4B/*/GSM8K,*/DSpark/MATH``.

    Raises:
        ValueError: a pattern that fits none.
    """
    words = [word.strip() for word in patterns.split(",")]
    for word in words:
        if not any(fnmatch(cell.name, word) for cell in cells()):
            known = f"{', '.join(TARGETS)}; {', '.join(DRAFTERS)}; {', '.join(SETS)}"
            raise ValueError(f"cells must name places like Qwen3-4B/DSpark/GSM8K of {known}, got {word!r}")
    return tuple(cell for cell in cells() if any(fnmatch(cell.name, word) for word in words))
