"""Acceptance traces of "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580).

A line holds a request's prompt, its text, and how many tokens a round at each position would emit, by an
EAGLE drafter and by prompt lookup: entry i belongs to the round that begins after i + 1 output tokens,
and counts the accepted drafts and one more (github.com/SpecDecode-Bench/simulator, revision 260263c).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import numpy as np

from dspark.analysis.replay.trace import AcceptanceTrace

if TYPE_CHECKING:
    from pathlib import Path

Drafters = Literal["eagle", "ngram", "combined"]
_KEYS = {"eagle": ("acc_eagle",), "ngram": ("acc_ngram",), "combined": ("acc_eagle", "acc_ngram")}


def read_illusion(path: Path, drafters: Drafters = "eagle") -> AcceptanceTrace:
    """The trace of a file.

    Args:
        path: a JSONL file.
        drafters: whose drafts; ``combined`` takes the longer acceptance of both at every position.

    Raises:
        ValueError: a line is not of that format.
    """
    names, prompts, outputs, accepted = [], [], [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line:
            continue
        try:
            item = json.loads(line)
            counts = [np.array(item[key]["acc_len"], dtype=np.int64) for key in _KEYS[drafters]]
            name, prompt = str(item["id"]), len(item["prompt_token_ids"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}:{number}: not an acceptance trace: {type(error).__name__} {error}; a line must hold "
                f"id, prompt_token_ids and {', '.join(_KEYS[drafters])} with acc_len"
            ) from error
        length = min(map(len, counts))
        if length < 1 or any(int(each.min()) < 1 for each in counts):
            raise ValueError(f"{path}:{number}: acc_len must list counts of 1 and more, got {name!r} without")
        names.append(name)
        prompts.append(prompt)
        outputs.append(length)
        # the last entry is of a round that would begin where the text ends
        accepted.append(np.max([each[: length - 1] for each in counts], axis=0) - 1)
    if not names:
        raise ValueError(f"{path} holds no acceptance trace")
    flat = np.concatenate(accepted)
    depth = int(flat.max(initial=0))
    sizes = np.array(outputs, dtype=np.int64)
    prompt_tokens = np.array(prompts, dtype=np.int64)
    return AcceptanceTrace(
        depth=depth,
        request_ids=tuple(f"{name}/{place}" for place, name in enumerate(names)),
        prompt_tokens=prompt_tokens,
        output_tokens=sizes,
        max_tokens=prompt_tokens + sizes + depth + 1,  # nothing is cut near the end, as in their simulator
        drafted=np.full(len(flat), depth, dtype=np.int64),
        accepted=flat,
        origin={"source": path.name, "drafters": drafters},
    )
