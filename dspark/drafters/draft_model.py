"""Drafts from a second causal language model that shares the target's vocabulary.

The model keeps a cache of its own. Before each draft it is brought in step: what it cached is
compared with what was committed, and only the difference is fed. After a normal step that is one or
two tokens, and after a pause at depth 0 everything since, in chunks. So a depth-0 step costs
nothing, and no sequence of depths can leave the drafter behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.drafters.base import DraftBatch, Drafter, Proceed
from dspark.drafters.signals import LOGIT_SIGNALS, LogitSignals
from dspark.models.base import PassRow, Target
from dspark.types import NO_TOKEN, Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.models.kv_cache import KVCache

CATCH_UP_CHUNK = 512
"""Committed tokens that one pass of the drafter takes in at most, over all rows."""


class DraftModelDrafter(Drafter):
    """An autoregressive drafter; the target itself is a valid model (for tests: all is accepted).

    Args:
        model: the draft model.
    """

    signals = LOGIT_SIGNALS
    deterministic = False
    autoregressive = True

    def __init__(self, model: Target) -> None:
        self.model = model
        self.vocab_size: int | None = model.vocab_size
        self.max_context: int | None = model.max_context
        self._cache: KVCache | None = None
        self._cached: list[list[int]] = []

    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """Allocate a cache for rows of up to ``max_context`` tokens, or the model's own context."""
        self._cache = self.model.new_cache(num_slots, min(max_context, self.model.max_context))
        self._cached = [[] for _ in range(num_slots)]

    def release(self, slot: int) -> None:
        """Forget what the slot's cache holds."""
        self._cached[slot] = []

    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """Drafts one token at a time for the rows still going; see :meth:`Drafter.propose`.

        On another device than the host there is one wait a depth, for the drawn tokens, which the next
        pass is built from, and one for the signals that somebody reads.
        """
        depths = plan.tolist()
        num_rows, max_depth = len(depths), max(depths)
        device = plan.device
        tokens = torch.full((num_rows, max_depth), NO_TOKEN, device=device)
        lengths = torch.zeros_like(plan)
        signals = LogitSignals(num_rows, max_depth, batch.needs & self.signals, device)
        q: Tensor | None = None
        going = torch.tensor([row for row, depth in enumerate(depths) if depth > 0], device=device)
        logits = self._catch_up(batch, going.tolist())
        for k in range(1, max_depth + 1):
            drawn, q_k = batch.sampler.draw(going, k, logits, tokens[going, : k - 1])
            tokens[going, k - 1] = drawn.to(device)
            lengths[going] = k
            signals.record(going, k, logits, drawn)
            if q_k is not None:
                q = q_k.new_zeros(num_rows, max_depth, q_k.shape[1]) if q is None else q
                q[going.to(q.device), k - 1] = q_k
            go_on = proceed(k, signals.upto(k)) & (plan > k) & (lengths == k)
            going = go_on.nonzero().squeeze(1)
            if going.numel() == 0:
                break
            logits = self._extend(batch, going.tolist(), tokens[going, k - 1].tolist())
        return Draft(tokens=tokens, lengths=lengths, q=q, signals=signals.all())

    def _catch_up(self, batch: DraftBatch, rows: list[int]) -> Tensor:
        """Logits [R, V] after each row's last committed token, with all of them cached."""
        assert self._cache is not None, "propose before open"
        slots = batch.slots.tolist()
        wanted = {}
        for row in rows:
            committed = batch.tokens[row]
            cached = self._cached[slots[row]]
            wanted[row] = list(committed[_common_prefix(cached, committed, len(committed) - 1) :])
        while sum(map(len, wanted.values())) > CATCH_UP_CHUNK:
            budget, passes = CATCH_UP_CHUNK, []
            for row, missing in wanted.items():
                count = min(len(missing) - 1, budget)  # the last one waits for the final pass
                if count > 0:
                    start = len(batch.tokens[row]) - len(missing)
                    passes.append(
                        PassRow(slot=slots[row], start=start, token_ids=missing[:count], num_logits=0)
                    )
                    wanted[row] = missing[count:]
                    budget -= count
            if not passes:
                break
            self._run(passes)
        final = [
            PassRow(
                slot=slots[row],
                start=len(batch.tokens[row]) - len(wanted[row]),
                token_ids=wanted[row],
                num_logits=1,
            )
            for row in rows
        ]
        for row in rows:
            self._cached[slots[row]] = list(batch.tokens[row])
        return self._run(final)

    def _extend(self, batch: DraftBatch, rows: list[int], drafted: list[int]) -> Tensor:
        """Logits [R, V] after one more drafted token a row."""
        slots = batch.slots.tolist()
        passes = []
        for row, token in zip(rows, drafted, strict=True):
            cached = self._cached[slots[row]]
            passes.append(PassRow(slot=slots[row], start=len(cached), token_ids=[token], num_logits=1))
            cached.append(token)
        return self._run(passes)

    def _run(self, passes: list[PassRow]) -> Tensor:
        assert self._cache is not None
        for row in passes:
            has_room = self._cache.reserve(row.slot, row.start + len(row.token_ids))
            assert has_room, "the drafter's cache is sized for every row"
        return self.model.forward(passes, self._cache)


def _common_prefix(cached: list[int], committed: Sequence[int], limit: int) -> int:
    """Leading tokens that both have in common, at most ``limit``."""
    longest = min(len(cached), limit)
    if cached[:longest] == list(committed[:longest]):
        return longest
    return next(i for i in range(longest) if cached[i] != committed[i])
