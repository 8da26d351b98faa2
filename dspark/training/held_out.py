"""The prompts that no training may touch: what evaluation is measured on.

``held_out.txt`` lists them one a line, the set's name and a digest of the prompt's core: GSM8K's test
records from 1001 on, HumanEval, MT-Bench and AIME 2025, in the order and wording of DeepSpec's
evaluation files (github.com/deepseek-ai/DeepSpec, ``eval_datasets``). Digests find a prompt under any
name of its file, with and without the wrapping that an evaluation puts around it.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dspark.workload.records import Prompt

HELD_OUT_SETS = ("gsm8k-1001", "humaneval", "mt-bench", "aime25")
"""Names of the sets in ``held_out.txt``."""

_NAMES = re.compile(r"human[-_]?eval|mt[-_]?bench|aime[-_]?(20)?25", re.IGNORECASE)
_INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
_FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


def refuse_held_out_name(path: str) -> None:
    """Nothing, if the path does not name a set that is held out as a whole.

    Raises:
        ValueError: it does.
    """
    found = _NAMES.search(path)
    if found:
        raise ValueError(
            f"{path!r} is held out for evaluation ({found[0]}), so nothing is trained on it: "
            "take it off prompts.sources"
        )


def is_held_out(prompt: Prompt) -> bool:
    """True where one of the prompt's messages is one of the held-out prompts."""
    return any(digest(core) in _digests() for message in prompt.messages for core in cores(message.content))


def cores(text: str) -> list[str]:
    """The text, and what of it may have been wrapped: without the instruction, and fenced code alone."""
    bare = text.replace(_INSTRUCTION, "")
    return [" ".join(part.split()) for part in (text, bare, *_FENCED.findall(text))]


def digest(core: str) -> str:
    """16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(core.encode()).hexdigest()[:16]


def split_held_out(prompts: Iterable[Prompt]) -> tuple[list[Prompt], int]:
    """The prompts that may be trained on, and how many may not."""
    every = list(prompts)
    allowed = [prompt for prompt in every if not is_held_out(prompt)]
    return allowed, len(every) - len(allowed)


def listed() -> list[tuple[str, str]]:
    """Set and digest of every held-out prompt."""
    text = (resources.files("dspark.training") / "held_out.txt").read_text(encoding="utf-8")
    return [(name, code) for name, code in (line.split() for line in text.splitlines() if line)]


@cache
def _digests() -> frozenset[str]:
    return frozenset(code for _, code in listed())
