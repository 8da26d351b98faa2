"""Drafts whole blocks from the target's features: DSpark and DFlash (arXiv 2607.05147).

One pass of the backbone computes all slots of a block; a sequential head, where there is one, goes
over them token by token. The block always has the length that the drafter was trained with, because
its slots see each other and a shorter one would be another distribution. A row's plan saves what
comes after: rows of the LM head, steps of the sequential head, and the target's verification. A row
of plan 0 costs nothing, since the features that every pass hands over are only kept, and become
keys and values when the row is drafted for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.drafters.base import DraftBatch, Drafter, Proceed
from dspark.drafters.block_cache import BlockCache, BlockRows
from dspark.drafters.block_head import BlockSteps
from dspark.drafters.draft_vocabulary import DraftVocabulary
from dspark.drafters.fused_block import for_drafting, native_block
from dspark.drafters.pending_features import PendingFeatures
from dspark.drafters.signals import LOGIT_SIGNALS, LogitSignals
from dspark.types import NO_TOKEN, Draft, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from dspark.drafters.block_model import BlockBackbone
    from dspark.models.base import PassRow
    from dspark.models.native.binding import Kernels


CATCH_UP_CHUNK = 2048
"""Context tokens whose keys and values are computed at once; long prompts' are computed in pieces."""


class BlockDrafter(Drafter):
    """A block drafter; with a confidence head it gives the signal ``confidence``.

    It asks ``proceed`` after every token, so that rules which stop after including a token work as
    with any drafter. The backbone has run by then: a stop saves steps of the head and verification.

    Under ``rejection`` the drafted law depends on company up to rounding, as products of several rows
    do; the law of the text does not.

    Args:
        model: backbone and heads, with the target's embedding and head in place. It stays as it is, and
            must not be trained as long as the drafter is used, which shares some of its weights.
        block_length: drafts of a block; None is what the drafter was trained with. Another number
            changes all drafts of the block, mostly for the worse: measure before using it.
        kernels: the target's CPU kernels, if it has any.

    Raises:
        ValueError: ``block_length`` is below 1.
    """

    deterministic = False
    autoregressive = True

    def __init__(
        self, model: BlockBackbone, block_length: int | None = None, kernels: Kernels | None = None
    ) -> None:
        if block_length is not None and block_length < 1:
            raise ValueError(
                f"block_length must be >= 1 draft, or null for the trained one, got {block_length}"
            )
        spec = model.spec
        self.model = for_drafting(model, kernels)
        self.block_length = block_length or spec.block_size
        self.max_depth = self.block_length
        self.signals = block_signals(confidence_head=spec.confidence_head)
        self.vocab_size: int | None = spec.vocab_size
        self.max_context: int | None = spec.max_context
        self.feature_layers = spec.feature_layers
        self._vocabulary = DraftVocabulary(model.d2t, spec.vocab_size)
        self._num_slots = spec.slots_for(self.block_length)
        self._native = native_block(model, kernels)
        self._cache: BlockCache | None = None
        self._pending = PendingFeatures(0)
        self._done: list[int] = []  # context positions of each slot that are keys and values

    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """Allocate keys and values for rows of up to ``max_context`` tokens, or the drafter's own context."""
        assert max_depth <= self.block_length, "the engine refuses plans that are deeper than a block"
        max_tokens = min(max_context, self.model.spec.max_context)
        self._cache = BlockCache(
            self.model.spec,
            num_slots=num_slots,
            max_tokens=max_tokens + self._num_slots,  # a block behind the last token
            like=self.model.norm.weight,
        )
        if self._native is not None:
            self._native.bind(*self._cache.tokens_of_layers(), self._cache.max_tokens)
        self._pending, self._done = PendingFeatures(num_slots, max_tokens), [0] * num_slots

    def release(self, slot: int) -> None:
        """Forget the slot's features and context."""
        self._pending.forget(slot)
        if self._cache is not None:
            self._cache.clear(slot, self._done[slot] + self._num_slots)
        self._done[slot] = 0

    def take_features(self, rows: Sequence[PassRow], features: Tensor) -> None:
        """Keep the features of a pass until their rows are drafted for."""
        self._pending.put(rows, features)

    @torch.inference_mode()
    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """Drafts one block a row, as far as planned; see :meth:`Drafter.propose`.

        On another device than the host there is one wait a depth, for the drawn tokens.

        Raises:
            ValueError: the drafter's states are not finite.
        """
        depths = plan.tolist()
        num_rows, max_depth = len(depths), max(depths)
        rows = [row for row, depth in enumerate(depths) if depth > 0]
        tokens = torch.full((num_rows, max_depth), NO_TOKEN)
        lengths = torch.zeros_like(plan)
        signals = LogitSignals(num_rows, max_depth, batch.needs & self.signals, plan.device)
        q: Tensor | None = None
        anchors = [batch.tokens[row][-1] for row in rows]
        hidden = self._hidden(batch, rows)
        if not bool(hidden.isfinite().all()):
            raise ValueError(
                "the drafter's hidden states must be finite, got NaN or infinity: the target's features or "
                "the drafter's weights are damaged; use another dtype or drafter"
            )
        steps = BlockSteps(self.model, hidden, anchors, [depths[row] for row in rows])
        going = torch.tensor(rows)
        wants_confidence = Signal.CONFIDENCE in batch.needs and self.model.confidence_head is not None
        for k in range(1, max_depth + 1):
            logits = steps.logits()
            drawn, q_k = batch.sampler.draw(going, k, self._vocabulary.widen(logits), tokens[going, : k - 1])
            tokens[going, k - 1] = drawn.to(tokens.device)
            lengths[going] = k
            given = {Signal.CONFIDENCE: steps.confidence()} if wants_confidence else {}
            signals.record(going, k, logits, self._vocabulary.draft_ids(drawn), given)
            if q_k is not None:
                q = q_k.new_zeros(num_rows, max_depth, q_k.shape[1]) if q is None else q
                q[going.to(q.device), k - 1] = q_k
            goes_on = (proceed(k, signals.upto(k)) & (plan > k) & (lengths == k))[going]
            going = going[goes_on]
            if going.numel() == 0:
                break
            steps.advance(drawn, goes_on)
        return Draft(tokens=tokens, lengths=lengths, q=q, signals=signals.all())

    def _hidden(self, batch: DraftBatch, rows: list[int]) -> Tensor:
        """Float [R, drafts, d]: the outputs of the slots that draft, for the rows with a plan."""
        assert self._cache is not None, "propose before open"
        slots = batch.slots[rows].tolist()
        positions = [len(batch.tokens[row]) - 1 for row in rows]  # the anchor, which has no features yet
        self._catch_up(self._cache, slots, positions)
        anchors = torch.tensor([batch.tokens[row][-1] for row in rows], device=self._cache.device)
        token_ids = self.model.slots(anchors, self._num_slots)
        if self._native is not None:
            hidden = self._native.run(slots, positions, token_ids.tolist())
        else:
            where = BlockRows(self._cache, slots, positions, self._num_slots)
            hidden = self.model.run(token_ids, where.positions, where.attend)
        return hidden[:, self.model.spec.first_slot :]

    def _catch_up(self, cache: BlockCache, slots: list[int], anchors: list[int]) -> None:
        """Keys and values of all context tokens before the rows' anchors."""
        behind = [(slot, self._done[slot], end) for slot, end in zip(slots, anchors, strict=True)]
        for spans in _pieces(behind):
            features = torch.cat([self._pending.take(*span) for span in spans])
            owners = [slot for slot, start, stop in spans for _ in range(start, stop)]
            positions = [place for _, start, stop in spans for place in range(start, stop)]
            if self._native is not None:
                self._native.write_context(features, owners, positions)
            else:
                self._write_context(cache, features, owners, positions)
        for slot, _, end in behind:
            self._done[slot] = max(self._done[slot], end)

    def _write_context(
        self, cache: BlockCache, features: Tensor, slots: list[int], positions: list[int]
    ) -> None:
        like = self.model.norm.weight
        context = self.model.context(features.to(like)[None])
        at = torch.tensor(positions, device=like.device)
        places = cache.places(torch.tensor(slots, device=like.device), at)
        for layer, keys_values in enumerate(self.model.context_kv(context, at[None])):
            cache.write(layer, places, keys_values)


def _pieces(spans: Sequence[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """The spans of positions (slot, start, stop) cut into lists of at most ``CATCH_UP_CHUNK`` tokens."""
    piece: list[tuple[int, int, int]] = []
    room = CATCH_UP_CHUNK
    for slot, first, end in spans:
        start = first
        while start < end:
            stop = min(end, start + room)
            piece.append((slot, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                yield piece
                piece, room = [], CATCH_UP_CHUNK
    if piece:
        yield piece


def block_signals(*, confidence_head: bool) -> frozenset[Signal]:
    """The signals of a block drafter with or without a confidence head."""
    return LOGIT_SIGNALS | {Signal.CONFIDENCE} if confidence_head else LOGIT_SIGNALS
