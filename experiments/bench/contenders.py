"""The sides of every ratio: each continues the same prompts by the same number of greedy tokens.

End tokens are ignored on all sides, so that every side emits exactly the same count of tokens.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.drafters.ngram import NgramDrafter
from dspark.engine.engine import Engine
from dspark.models.base import PassRow
from dspark.policies.fixed import Fixed
from dspark.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dspark.models.target import HFTarget

Tokens = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One side: a name and a function that continues prompts by n tokens each."""

    name: str
    generate: Callable[[Tokens, int], Tokens]


def timed(contender: Contender, prompts: Tokens, num_new: int) -> tuple[float, Tokens]:
    """Seconds, and the new tokens of each prompt."""
    start = time.perf_counter()
    output = contender.generate(prompts, num_new)
    return time.perf_counter() - start, output


def engine(target: HFTarget, name: str, *, with_drafter: bool, depth: int = 0, max_n: int = 3) -> Contender:
    """Our engine, at one batch size per call: as many rows as there are prompts."""

    def generate(prompts: Tokens, num_new: int) -> Tokens:
        drafter = NgramDrafter(min_n=1, max_n=max_n) if with_drafter else None
        run = Engine(target, drafter, Fixed(depth=depth), max_batch_size=len(prompts), prefill_chunk=4096)
        params = SamplingParams(max_new_tokens=num_new, ignore_eos=True)
        return [list(done.token_ids) for done in run.generate(prompts, params)]

    return Contender(name=name, generate=generate)


def bare_forward(target: HFTarget) -> Contender:
    """The same model's batched forward and an arg max in a loop: no engine, no bookkeeping."""

    @torch.inference_mode()
    def generate(prompts: Tokens, num_new: int) -> Tokens:
        cache = target.new_cache(len(prompts), max(map(len, prompts)) + num_new)
        rows = [PassRow(slot=i, start=0, token_ids=p, num_logits=1) for i, p in enumerate(prompts)]
        outputs: Tokens = [[] for _ in prompts]
        for step in range(num_new):
            chosen = target.forward(rows, cache).argmax(-1).tolist()
            for output, token in zip(outputs, chosen, strict=True):
                output.append(token)
            rows = [
                PassRow(slot=i, start=len(p) + step, token_ids=[token], num_logits=1)
                for i, (p, token) in enumerate(zip(prompts, chosen, strict=True))
            ]
        return outputs

    return Contender(name="bare forward", generate=generate)


def transformers_generate(folder: Path) -> Contender:
    """``generate`` of transformers on the same folder, left-padded, greedy, with its default cache."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    pad = model.generation_config.pad_token_id or 0
    model.generation_config.eos_token_id = None

    @torch.inference_mode()
    def generate(prompts: Tokens, num_new: int) -> Tokens:
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=num_new, do_sample=False, pad_token_id=pad
        )
        return out[:, width:].tolist()

    return Contender(name="transformers generate", generate=generate)
