"""Sides that take turns step by step, so that a ratio of a percent can be told from the machine's drift.

A shared machine's speed drifts by several percent within seconds. Here each side does one step of the
same batch in turn, in every order, and a ratio is the median over steps of the ratio of two
neighbours: drift is slower than a step, and a spike falls on one step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import permutations
from statistics import median
from typing import TYPE_CHECKING

import torch

from dspark.drafters.ngram import NgramDrafter
from dspark.engine.engine import Engine
from dspark.models.base import PassRow
from dspark.policies.fixed import Fixed
from dspark.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dspark.models.target import HFTarget

Tokens = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Seconds of every decode step of each side, step i of one beside step i of the others."""

    batch_size: int
    seconds: dict[str, list[float]]

    def ratio(self, side: str, other: str) -> float:
        """Median over steps of the side's seconds over the other's."""
        pairs = zip(self.seconds[side], self.seconds[other], strict=True)
        return median(mine / theirs for mine, theirs in pairs)


def take_turns(
    target: HFTarget, prompts: Tokens, *, num_new: int, repeats: int, advance: Callable[[], None]
) -> StepTimes:
    """Plain engine, engine with a drafter at depth 0, and bare forwards with an arg max, in turn."""
    sides = {
        "engine": lambda: _engine_steps(target, prompts, num_new, with_drafter=False),
        "engine, depth 0": lambda: _engine_steps(target, prompts, num_new, with_drafter=True),
        "bare forward": lambda: _bare_steps(target, prompts, num_new),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        running = {name: make() for name, make in sides.items()}
        for steps in running.values():
            next(steps)  # the prompts
        orders = list(permutations(running))  # who runs before whom matters: a pass leaves cold caches
        for step in range(num_new - 1):
            for name in orders[step % len(orders)]:
                start = time.perf_counter()
                next(running[name])
                seconds[name].append(time.perf_counter() - start)
        advance()
    return StepTimes(batch_size=len(prompts), seconds=seconds)


def _engine_steps(target: HFTarget, prompts: Tokens, num_new: int, *, with_drafter: bool) -> Iterator[None]:
    drafter = NgramDrafter(min_n=1, max_n=3) if with_drafter else None
    engine = Engine(target, drafter, Fixed(depth=0), max_batch_size=len(prompts), prefill_chunk=1 << 20)
    params = SamplingParams(max_new_tokens=num_new, ignore_eos=True)
    for record in engine.run(engine.requests.make(prompts, params)):
        assert record.num_prefill_rows in (0, len(prompts)), "all prompts are one pass"
        yield


@torch.inference_mode()
def _bare_step(target: HFTarget, rows: list[PassRow], cache) -> list[int]:
    return target.forward(rows, cache).argmax(-1).tolist()


def _bare_steps(target: HFTarget, prompts: Tokens, num_new: int) -> Iterator[None]:
    cache = target.new_cache(len(prompts), max(map(len, prompts)) + num_new)
    rows = [PassRow(slot=i, start=0, token_ids=p, num_logits=1) for i, p in enumerate(prompts)]
    for step in range(num_new):
        chosen = _bare_step(target, rows, cache)
        yield
        rows = [
            PassRow(slot=i, start=len(p) + step, token_ids=[token], num_logits=1)
            for i, (p, token) in enumerate(zip(prompts, chosen, strict=True))
        ]
