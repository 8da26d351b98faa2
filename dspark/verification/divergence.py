"""How far the target's law was from the drafter's, once the pass that tells is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.sampling import Position, adjust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.types import Draft
    from dspark.verification.base import SampledRow


def divergence(rows: Sequence[SampledRow], draft: Draft, verify_lengths: Tensor, logits: Tensor) -> Tensor:
    """KL(q || p) in nats, float [B, K], of each verified position; NaN elsewhere.

    p is the target's softmax after penalties at temperature 1. For point masses, and wherever no q
    was needed, KL is that of the drafted token: ``-log p(x)``.

    Args:
        rows: the B rows with a draft.
        draft: what was drafted.
        verify_lengths: int [B].
        logits: float [M, V], the first sum of 1 + verify_lengths rows belong to these rows.
    """
    result = torch.full(draft.tokens.shape, torch.nan, device=logits.device)
    offset = 0
    for i, (row, length) in enumerate(zip(rows, verify_lengths.tolist(), strict=True)):
        drafted = draft.tokens[i, :length]
        positions = [
            Position(
                params=row.params,
                prefix=row.tokens,
                drafted=drafted[:k].tolist(),
                num_prompt=row.num_prompt,
                eos_token_ids=row.eos_token_ids,
            )
            for k in range(length)
        ]
        if length:
            log_p = torch.log_softmax(adjust(logits[offset : offset + length], positions), -1)
            if draft.q is None:
                result[i, :length] = -log_p.gather(1, drafted[:, None].to(log_p.device)).squeeze(1)
            else:
                q = draft.q[i, :length]
                result[i, :length] = (torch.special.xlogy(q, q) - q * log_p.clamp(min=-1e4)).sum(-1)
        offset += 1 + length
    return result
