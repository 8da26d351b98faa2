"""Batches of unlike rows: greedy and sampled, penalised and plain, of unequal verify lengths."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark.types import NO_TOKEN, Draft, SamplingParams, Verdict
from dspark.verification import SampledRow, Verification

GREEDY = SamplingParams(temperature=0.0)
ALL_PARAMS = (
    GREEDY,
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.0, repetition_penalty=1.3, min_new_tokens=6),
    SamplingParams(temperature=0.7, top_k=20),
    SamplingParams(temperature=1.3, top_p=0.85),
    SamplingParams(temperature=1.0, repetition_penalty=1.2, min_new_tokens=6, top_p=0.95),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The arguments of ``Verification.verify``."""

    rows: list[SampledRow]
    draft: Draft
    verify_lengths: Tensor
    logits: Tensor

    def verify(self, rule: Verification) -> Verdict:
        """The rule's verdict."""
        return rule.verify(self.rows, self.draft, self.verify_lengths, self.logits)

    def take(self, index: list[int]) -> Batch:
        """The batch of some rows, those with drafts first."""
        sizes = self.verify_lengths + 1
        first = sizes.cumsum(0) - sizes
        drafted = [i for i in index if i < len(self.draft.tokens)]
        index = drafted + [i for i in index if i not in drafted]
        return Batch(
            rows=[self.rows[i] for i in index],
            draft=Draft(
                tokens=self.draft.tokens[drafted],
                lengths=self.draft.lengths[drafted],
                q=None if self.draft.q is None else self.draft.q[drafted],
            ),
            verify_lengths=self.verify_lengths[index],
            logits=torch.cat([self.logits[first[i] : first[i] + sizes[i]] for i in index]),
        )


def mixed_batch(
    rule: Verification,
    *,
    params: tuple[SamplingParams, ...] = ALL_PARAMS,
    num_rows: int = 24,
    num_undrafted: int = 3,
    depth: int = 3,
    vocab_size: int = 50,
    noise: float = 0.3,
    seed: int = 0,
) -> Batch:
    """A batch whose drafts come from the target's logits plus noise, drawn as the rule wants them.

    The rows cycle through ``params`` and through verify lengths 0..depth; the last
    ``num_undrafted`` rows have no draft.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = [
        SampledRow(
            params=params[i % len(params)],
            tokens=torch.randint(vocab_size, (3 + i % 5,), generator=generator).tolist(),
            num_prompt=2,
            eos_token_ids=(1, 4),
            seed=seed * 1000 + i,
        )
        for i in range(num_rows)
    ]
    num_drafted = num_rows - num_undrafted
    logits = torch.randn(num_rows, depth + 1, vocab_size, generator=generator) * 3
    heard = logits[:num_drafted, :depth]
    heard = heard + noise * torch.randn(heard.shape, generator=generator)
    lengths = torch.arange(num_drafted) % (depth + 1)
    tokens = torch.full((num_drafted, depth), NO_TOKEN)
    sampler = rule.draft_sampler(rows[:num_drafted])
    q = torch.full((num_drafted, depth, vocab_size), torch.nan) if sampler.needs_q else None
    for k in range(1, depth + 1):
        going = (lengths >= k).nonzero().squeeze(1)
        drawn, law = sampler.draw(going, k, heard[going, k - 1], tokens[going, : k - 1])
        tokens[going, k - 1] = drawn
        if q is not None and law is not None:
            q[going, k - 1] = law
    verify_lengths = torch.zeros(num_rows, dtype=torch.int64)
    verify_lengths[:num_drafted] = lengths - (torch.arange(num_drafted) % 7 == 3).long() * (lengths > 0)
    seen = torch.arange(depth + 1) <= verify_lengths[:, None]
    return Batch(
        rows=rows,
        draft=Draft(tokens=tokens, lengths=lengths, q=q),
        verify_lengths=verify_lengths,
        logits=logits[seen],
    )
