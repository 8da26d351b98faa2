"""The pairs that an EAGLE-3 head has seen of each row, as cached keys and values in step with the target.

Pair i is the target's feature of position i and token i + 1. A row of L committed tokens has L - 1
true pairs. Those of a chain lie past them and are overwritten by position, as are the features of
rejected tokens; a true pair never changes. So being in step takes one number a slot: how many true
pairs are cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.drafters.pending_features import PendingFeatures
from dspark.models.kv_cache import CacheShape, KVCache

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from dspark.drafters.eagle3_model import Eagle3Model, Turns
    from dspark.models.base import PassRow

CATCH_UP_CHUNK = 2048
"""True pairs that are made keys and values of at once, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The pair of each row that its next token is predicted from; keys and values are cached."""

    slots: list[int]  # R
    positions: list[int]  # R, of the pairs
    g: Tensor  # float [R, d]
    pairs: Tensor  # float [R, 2d]
    turns: Turns  # float [R, h] each


@dataclass(frozen=True, slots=True)
class _Span:
    """True pairs ``start`` to ``stop`` of a slot."""

    slot: int
    tokens: Sequence[int]  # the row's
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def before_last(self) -> Iterator[_Span]:
        """All pairs but the last, in pieces of at most :data:`CATCH_UP_CHUNK`."""
        for start in range(self.start, self.stop - 1, CATCH_UP_CHUNK):
            yield _Span(self.slot, self.tokens, start, min(start + CATCH_UP_CHUNK, self.stop - 1))

    def last(self) -> _Span:
        """The last pair alone."""
        return _Span(self.slot, self.tokens, self.stop - 1, self.stop)


class PairCache:
    """Pairs of up to ``num_slots`` rows of up to ``max_tokens`` tokens.

    Args:
        model: the head.
        num_slots: rows.
        max_tokens: longest row, drafts included.
    """

    def __init__(self, model: Eagle3Model, *, num_slots: int, max_tokens: int) -> None:
        self.model = model
        self._device, self._dtype = model.fc.weight.device, model.fc.weight.dtype
        groups, size = model.spec.num_kv_heads, model.spec.head_dim
        self._cache = KVCache(
            CacheShape(num_layers=1, num_kv_heads=groups, head_dim=size, value_dim=size),
            num_slots=num_slots,
            max_tokens=max_tokens,
            dtype=self._dtype,
            device=self._device,
        )
        self._pending = PendingFeatures(num_slots, max_tokens)
        self._cached = [0] * num_slots  # true pairs

    def take_features(self, rows: Sequence[PassRow], features: Tensor) -> None:
        """Keep the target's features of a pass until :meth:`catch_up`."""
        self._pending.put(rows, features)

    def release(self, slot: int) -> None:
        """Forget a slot."""
        self._pending.forget(slot)
        self._cache.release(slot)
        self._cached[slot] = 0

    def catch_up(self, slots: list[int], tokens: list[Sequence[int]]) -> Heads:
        """Each row's last true pair, with all of them cached.

        Args:
            slots: of R rows.
            tokens: R rows of committed tokens, at least two each.
        """
        spans = []
        for slot, row in zip(slots, tokens, strict=True):
            count = len(row) - 1
            spans.append(_Span(slot, row, min(self._cached[slot], count - 1), count))
            self._cached[slot] = count
        if sum(map(len, spans)) > CATCH_UP_CHUNK:
            for span in spans:
                for piece in span.before_last():
                    self._absorb([piece])
            spans = [span.last() for span in spans]
        return self._absorb(spans)

    def extend(self, heads: Heads, kept: list[int], g: Tensor, token_ids: Tensor) -> Heads:
        """The next pair of each row's chain.

        Args:
            heads: of R rows.
            kept: which of the R go on.
            g: float [R, d], what the head gave in place of the next feature.
            token_ids: int [R], drafted after ``heads``.
        """
        if len(kept) < len(heads.slots):
            index = torch.tensor(kept, device=self._device)
            g, token_ids = g[index], token_ids[index]
        slots = [heads.slots[i] for i in kept]
        positions = [heads.positions[i] + 1 for i in kept]
        return self._cached_pairs(slots, positions, g, token_ids)

    def attend(self, heads: Heads) -> Tensor:
        """y, float [R, d], of the heads' pairs over all cached ones up to them."""
        longest, slots = max(heads.positions) + 1, heads.slots
        first = slots[0]
        if slots == list(range(first, first + len(slots))):
            keys, values = self._cache.read_range(0, first, first + len(slots), longest)
        else:
            index = torch.tensor(slots, device=self._device)
            keys = self._cache.keys[0][index, :longest].transpose(1, 2)
            values = self._cache.values[0][index, :longest].transpose(1, 2)
        mask = None
        if min(heads.positions) + 1 < longest:
            ends = torch.tensor(heads.positions, device=self._device)
            mask = (torch.arange(longest, device=self._device) <= ends[:, None])[:, None, None]
        return self.model.step(heads.g, heads.pairs, heads.turns, keys, values, mask)

    def _absorb(self, spans: list[_Span]) -> Heads:
        """Cache the spans' pairs; the last one of each is returned."""
        features = [self._pending.take(span.slot, span.start, span.stop) for span in spans]
        g = self.model.fuse(torch.cat(features).to(self._dtype))
        ids = [token for span in spans for token in span.tokens[span.start + 1 : span.stop + 1]]
        slots = [span.slot for span in spans for _ in range(len(span))]
        positions = [at for span in spans for at in range(span.start, span.stop)]
        all_pairs = self._cached_pairs(slots, positions, g, torch.tensor(ids, device=self._device))
        if len(ids) == len(spans):
            return all_pairs
        ends = torch.tensor([len(span) for span in spans], device=self._device).cumsum(0) - 1
        cos, sin = all_pairs.turns
        return Heads(
            slots=[span.slot for span in spans],
            positions=[span.stop - 1 for span in spans],
            g=g[ends],
            pairs=all_pairs.pairs[ends],
            turns=(cos[ends], sin[ends]),
        )

    def _cached_pairs(self, slots: list[int], positions: list[int], g: Tensor, token_ids: Tensor) -> Heads:
        """Pairs of g [N, d] and token_ids [N], with their keys and values written to the cache."""
        at = torch.tensor(positions, device=self._device)
        turns = self.model.rotary(at, self._dtype)
        pairs = self.model.pairs(g, token_ids)
        keys, values = self.model.keys_values(pairs, turns)
        row = self._cache.max_tokens
        index = [slot * row + position for slot, position in zip(slots, positions, strict=True)]
        self._cache.write(0, torch.tensor(index, device=self._device), keys, values)
        return Heads(slots=slots, positions=positions, g=g, pairs=pairs, turns=turns)
