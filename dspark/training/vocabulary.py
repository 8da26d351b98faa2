"""The tokens that a drafter can draft: the most frequent ones of the answers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from dspark.training.answers import Answer


def draft_vocabulary(
    answers: Iterable[Answer], size: int, *, vocab_size: int, always: Iterable[int] = ()
) -> Tensor:
    """Int64 [size], ascending: the target's ids of the drafter's tokens.

    Args:
        answers: whose tokens are counted, without their prompts.
        size: W, tokens that can be drafted.
        vocab_size: V, the target's tokens.
        always: tokens that are taken however rare, such as those that end a text.

    Raises:
        ValueError: more tokens than the target has.
    """
    if size > vocab_size:
        raise ValueError(
            f"draft.vocab_size must be at most the target's vocabulary, {vocab_size}, got {size}; "
            "null takes all"
        )
    counts = _counts(answers)
    kept = set(always)
    ranked = sorted(range(vocab_size), key=lambda token: (token not in kept, -counts[token], token))
    return torch.tensor(sorted(ranked[:size]))


def covered_share(target_ids: Tensor, answers: Iterable[Answer]) -> float:
    """The share of the answers' tokens that are among ``target_ids`` int [W]."""
    counts = _counts(answers)
    return sum(counts[token] for token in target_ids.tolist()) / max(1, counts.total())


def _counts(answers: Iterable[Answer]) -> Counter[int]:
    return Counter(token for answer in answers for token in answer.token_ids)


def offsets_of(target_ids: Tensor) -> Tensor:
    """Int64 [W], "d2t": target id minus draft id, for target ids [W] (speculators' checkpoints)."""
    return target_ids - torch.arange(len(target_ids))


def draft_ids_of(target_ids: Tensor, vocab_size: int) -> Tensor:
    """Int64 [V]: the draft id of each of the target's tokens, -1 where it cannot be drafted."""
    table = torch.full((vocab_size,), -1, dtype=torch.int64)
    table[target_ids] = torch.arange(len(target_ids))
    return table
