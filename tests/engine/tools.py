"""What engine tests share: a tiny target, prompts, drafters, and policies with any depth sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from dspark.drafters.base import Drafter
from dspark.engine.engine import Engine
from dspark.models.target import HFTarget, load_target
from dspark.policies.base import Policy
from dspark.types import NO_TOKEN, Draft, LosslessClass, SamplingParams


def load(folder, numerics="invariant") -> HFTarget:
    return load_target(folder, numerics=numerics)


def random_prompts(count: int, *, seed: int = 0, low: int = 3, high: int = 40, vocab: int = 256):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high, (count,), generator=generator).tolist()
    return [torch.randint(vocab, (n,), generator=generator).tolist() for n in lengths]


@dataclass(frozen=True)
class Jagged(Policy):
    """A different depth for every row and step, 0 included: a hash of step and slot."""

    lossless_class: ClassVar[LosslessClass] = LosslessClass.FIXED
    depth: int = 4
    zero_every: int = 3  # every so many steps, all rows have depth 0

    @property
    def max_depth(self) -> int:
        return self.depth

    def plan(self, ctx, state):
        if self.zero_every and ctx.step % self.zero_every == 0:
            return torch.zeros_like(ctx.slots)
        return (ctx.slots * 7 + ctx.step * 5 + ctx.context_lengths) % (self.depth + 1)


@dataclass(frozen=True)
class HalfTrim(Policy):
    """Drafts the whole depth and verifies a part that differs from row to row."""

    lossless_class: ClassVar[LosslessClass] = LosslessClass.FIXED
    depth: int = 4

    @property
    def max_depth(self) -> int:
        return self.depth

    def plan(self, ctx, state):
        return torch.full_like(ctx.slots, self.depth)

    def trim(self, ctx, draft, state):
        return torch.minimum(draft.lengths, (ctx.slots + ctx.step) % (self.depth + 1))


class WrongDrafter(Drafter):
    """Adversarial: knows the right continuation and always proposes something else."""

    signals = frozenset()
    deterministic = True
    autoregressive = False
    vocab_size = None
    max_context = None

    def __init__(self, right: dict[tuple[int, ...], list[int]], vocab_size: int) -> None:
        self.right, self.vocab = right, vocab_size

    def open(self, num_slots, max_depth, max_context):
        pass

    def release(self, slot):
        pass

    def propose(self, batch, plan, proceed):
        width = int(plan.max())
        tokens = torch.full((len(batch.tokens), width), NO_TOKEN)
        for i, depth in enumerate(plan.tolist()):
            row = list(batch.tokens[i])
            for k in range(depth):
                tokens[i, k] = (self._next(row, k) + 1) % self.vocab
        return Draft(tokens=tokens, lengths=plan.clone(), q=None)

    def _next(self, row: list[int], k: int) -> int:
        for prompt, output in self.right.items():
            full = [*prompt, *output]
            if full[: len(row)] == row and len(row) > len(prompt) and len(row) + k < len(full):
                return full[len(row) + k]
        return 0


def outputs(engine: Engine, prompts, params=None):
    """Output ids in prompt order, and every step record."""
    requests = engine.requests.make(prompts, params or SamplingParams(max_new_tokens=24))
    records = list(engine.run(requests))
    return [engine.completions[r.request_id].token_ids for r in requests], records


def rows_of(records):
    return [row for record in records for row in record.rows]
