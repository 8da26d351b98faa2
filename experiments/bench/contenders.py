"""The sides of every ratio: each continues the same prompts by the same number of greedy tokens.

End tokens are ignored on all sides, so that every side emits exactly the same count of tokens.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dspark.drafters.ngram import NgramDrafter
from dspark.engine.engine import PLAIN, Engine
from dspark.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dspark.models.target import HFTarget
    from dspark.policies import Policy

Tokens = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One side: a name and a function that continues prompts by n tokens each.

    A side that runs in a process of its own takes its time there, so that what passes between the
    processes is not counted: it brings ``timed``, which gives the seconds and the tokens.
    """

    name: str
    generate: Callable[[Tokens, int], Tokens]
    timed: Callable[[Tokens, int], tuple[float, Tokens]] | None = None


def timed(contender: Contender, prompts: Tokens, num_new: int) -> tuple[float, Tokens]:
    """Seconds, and the new tokens of each prompt: exactly ``num_new``, or the side is not comparable."""
    if contender.timed is not None:
        seconds, output = contender.timed(prompts, num_new)
    else:
        start = time.perf_counter()
        output = contender.generate(prompts, num_new)
        seconds = time.perf_counter() - start
    counts = [len(row) for row in output]
    assert counts == [num_new] * len(prompts), f"{contender.name} gave {counts} tokens, not {num_new} a row"
    return seconds, output


def engine(
    target: HFTarget, name: str, *, with_drafter: bool, policy: Policy = PLAIN, max_n: int = 3
) -> Contender:
    """Our engine, at one batch size per call: as many rows as there are prompts."""

    def generate(prompts: Tokens, num_new: int) -> Tokens:
        drafter = NgramDrafter(min_n=1, max_n=max_n) if with_drafter else None
        run = Engine(target, drafter, policy, max_batch_size=len(prompts), prefill_chunk=4096)
        params = SamplingParams(max_new_tokens=num_new, ignore_eos=True)
        return [list(done.token_ids) for done in run.generate(prompts, params)]

    return Contender(name=name, generate=generate)


def transformers_model(folder: Path) -> Any:
    """The folder's model as transformers loads it, in float32, without end tokens."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    return model


def transformers_generate(model: Any, name: str = "transformers generate", **options: Any) -> Contender:
    """``generate`` of transformers, left-padded, greedy, with its default cache.

    Args:
        model: of :func:`transformers_model`.
        name: the side's name.
        options: more arguments of ``generate``.
    """
    pad = model.generation_config.pad_token_id or 0

    @torch.inference_mode()
    def generate(prompts: Tokens, num_new: int) -> Tokens:
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=num_new, do_sample=False, pad_token_id=pad, **options
        )
        return out[:, width:].tolist()

    return Contender(name=name, generate=generate)
