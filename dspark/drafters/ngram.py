"""Prompt lookup: propose what followed the row's last tokens the last time they occurred."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.drafters.base import DraftBatch, Drafter, Proceed
from dspark.drafters.ngram_index import NgramIndex
from dspark.types import NO_TOKEN, Draft, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


class NgramDrafter(Drafter):
    """Copies from the row's own prompt and output; costs no model pass.

    The method is known as prompt lookup (Saxena, https://github.com/apoorvumang/prompt-lookup-decoding),
    ``prompt_lookup_num_tokens`` in transformers and ``ngram`` in vLLM. Two choices differ from these:
    the most recent occurrence is copied, not the first, and a copy that reaches the end of the text
    goes on periodically instead of ending there.

    All signals come from one number p, an estimate from the row's own text of how likely the copied
    token is. The copied token is a function of the prefix, so that "the top token" and "the drawn
    token" are one, and p also estimates the conditional acceptance (``confidence``). Entropy and
    margin are those of the two outcomes that p tells apart, this token or another: H(p, 1 - p), a
    lower bound of the entropy over the vocabulary, and the log-odds of p.

    Args:
        min_n: shortest suffix to look up.
        max_n: longest, tried first.

    Raises:
        ValueError: not 1 <= min_n <= max_n.
    """

    signals = frozenset(
        {
            Signal.TOKEN_PROBABILITY,
            Signal.TOP1_PROBABILITY,
            Signal.CONFIDENCE,
            Signal.ENTROPY,
            Signal.MARGIN,
        }
    )
    deterministic = True
    autoregressive = True
    vocab_size = None
    max_context = None

    def __init__(self, min_n: int = 1, max_n: int = 3) -> None:
        if not 1 <= min_n <= max_n:
            raise ValueError(
                f"an n-gram drafter needs 1 <= min_n <= max_n, got min_n={min_n} and max_n={max_n}"
            )
        self.min_n, self.max_n = min_n, max_n
        self._indices: dict[int, NgramIndex] = {}  # by slot

    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """Forget all rows; an index grows with its row."""
        self._indices = {}

    def release(self, slot: int) -> None:
        """Forget a slot: its row has left."""
        self._indices.pop(slot, None)

    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """Draft at most ``plan`` [B] tokens a row; rows with plan 0 cost and change nothing.

        Works on the host (an index is a dictionary); ``plan`` and every answer of ``proceed`` are
        brought there. Runs in O(max_n) a token, drafted or newly committed.
        """
        limits, slots = plan.tolist(), batch.slots.tolist()
        num_rows, depth = len(limits), max(limits, default=0)
        drafts: list[list[int]] = [[] for _ in limits]
        estimates = torch.full((num_rows, depth), torch.nan)
        wanted = (row for row in range(num_rows) if limits[row] > 0)
        copies = {
            row: copy for row in wanted if (copy := self._copy(slots[row], batch.tokens[row])) is not None
        }
        for k in range(1, depth + 1):
            column = [torch.nan] * num_rows
            for row, copy in copies.items():
                token, column[row] = next(copy)
                drafts[row].append(token)
            estimates[:, k - 1] = torch.tensor(column)
            copies = {row: copy for row, copy in copies.items() if k < limits[row]}
            if not copies:
                break
            goes_on = proceed(k, _signals(estimates[:, :k], plan.device, batch.needs)).tolist()
            copies = {row: copy for row, copy in copies.items() if goes_on[row]}
        padded = [draft + [NO_TOKEN] * (depth - len(draft)) for draft in drafts]
        return Draft(
            tokens=torch.tensor(padded, dtype=torch.int64, device=plan.device).view(num_rows, depth),
            lengths=torch.tensor([len(draft) for draft in drafts], dtype=torch.int64, device=plan.device),
            q=None,
            signals=_signals(estimates, plan.device, batch.needs),
        )

    def _copy(self, slot: int, tokens: Sequence[int]) -> Iterator[tuple[int, float]] | None:
        """The row's continuation, if it has one, its index brought in step first."""
        index = self._indices.get(slot)
        if index is None or not index.continues(tokens):
            index = self._indices[slot] = NgramIndex(self.min_n, self.max_n)
        index.extend(tokens)
        return index.continuation(tokens)


def _signals(estimates: Tensor, device: torch.device, needs: frozenset[Signal]) -> dict[Signal, Tensor]:
    """The estimates under the names of probabilities, and entropy and margin where they are read."""
    p = estimates.to(device)
    signals = {Signal.TOKEN_PROBABILITY: p, Signal.TOP1_PROBABILITY: p, Signal.CONFIDENCE: p}
    if Signal.ENTROPY in needs:
        signals[Signal.ENTROPY] = -(torch.special.xlogy(p, p) + torch.special.xlogy(1 - p, 1 - p))
    if Signal.MARGIN in needs:
        signals[Signal.MARGIN] = torch.logit(p, eps=1e-6)
    return signals
