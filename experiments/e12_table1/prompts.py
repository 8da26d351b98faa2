"""Prompts as DeepSpec's evaluation gives them to a target."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from experiments.e12_table1.cells import SEED

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from experiments.e12_table1.cells import PromptSet


def first_turns(path: Path, num_prompts: int) -> list[tuple[int, str]]:
    """Line number and first turn of the records that are taken, in their order.

    A longer file is shuffled and cut, as there; the second turns of MT-Bench are not used there either.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    records = [(number, json.loads(line)["turns"][0]) for number, line in enumerate(lines, start=1)]
    if len(records) > num_prompts:
        random.Random(SEED).shuffle(records)
    return records[:num_prompts]


def write_prompts(folder: Path, prompts: PromptSet, tokenizer: PreTrainedTokenizerBase, out: Path) -> Path:
    """``out``, which then holds a set's prompts as texts in the target's template.

    One user turn, no system turn, thinking off: Qwen3's template then opens the answer behind an empty
    thought. Templates without thinking ignore that.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    stem = prompts.file.removesuffix(".jsonl")
    with out.open("w", encoding="utf-8") as file:
        for number, turn in first_turns(folder / prompts.file, prompts.num_prompts):
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": turn}],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
            )
            file.write(json.dumps({"id": f"{stem}-{number}", "prompt": text}, ensure_ascii=False) + "\n")
    return out
