"""Keys and values of a block drafter: of the context, once a token, and of the block being drafted.

A row's context ends before its anchor, at position s. The block's own keys and values are written
behind it, where the next context tokens will overwrite them, so that attention reads one stretch of
memory and nothing has to be taken back after a draft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.drafters.block_model import KeysValues
    from dspark.drafters.spec import DraftSpec


class BlockCache:
    """Room for every slot's context and one block; how far a slot is filled is the caller's to know.

    Args:
        spec: sizes, windows.
        num_slots: rows.
        max_tokens: positions of a row, its block included.
        like: its dtype and device are the cache's.
    """

    def __init__(self, spec: DraftSpec, *, num_slots: int, max_tokens: int, like: Tensor) -> None:
        self.spec, self.num_slots, self.max_tokens = spec, num_slots, max_tokens
        shape = (spec.num_layers, 2, num_slots * max_tokens, spec.num_kv_heads, spec.head_dim)
        # zeros: a masked key weighs 0, and 0 times what uninitialised memory may hold is not a number
        self._tokens = torch.zeros(shape, dtype=like.dtype, device=like.device)

    @property
    def device(self) -> torch.device:
        """Where the keys and values are."""
        return self._tokens.device

    def tokens_of_layers(self) -> tuple[list[Tensor], list[Tensor]]:
        """Each layer's keys, and values, [num_slots * max_tokens, G, h]: slot after slot."""
        return list(self._tokens[:, 0]), list(self._tokens[:, 1])

    def places(self, slots: Tensor, positions: Tensor) -> Tensor:
        """Int: where tokens lie, to be given to :meth:`write`."""
        return slots * self.max_tokens + positions

    def write(self, layer: int, places: Tensor, keys_values: KeysValues) -> None:
        """Keep keys and values [B, G, T, h] at ``places`` int [B * T]."""
        for kept, new in zip(self._tokens[layer], keys_values, strict=True):
            kept.index_copy_(0, places, new.transpose(1, 2).flatten(0, 1))

    def clear(self, slot: int, num_tokens: int) -> None:
        """Zero a slot's first tokens: what is not finite there would come through a masked weight of 0."""
        first = slot * self.max_tokens
        self._tokens[:, :, first : first + num_tokens].zero_()

    def read(self, layer: int, slots: list[int], width: int) -> KeysValues:
        """Keys and values [R, G, width, h] of the rows' first positions; views where slots are neighbours."""
        spec = self.spec
        shape = (self.num_slots, self.max_tokens, spec.num_kv_heads, spec.head_dim)
        first, count = slots[0], len(slots)
        if slots == list(range(first, first + count)):
            keys, values = (kept.view(shape)[first : first + count, :width] for kept in self._tokens[layer])
        else:
            keys, values = (kept.view(shape)[slots, :width] for kept in self._tokens[layer])
        return keys.transpose(1, 2), values.transpose(1, 2)


class BlockRows:
    """The rows of one draft: their blocks' positions, and attention over cache and block.

    Args:
        cache: with each row's context up to its anchor.
        slots: of the rows, R.
        anchors: each row's anchor position s.
        num_slots: S, slots of a block.
    """

    def __init__(self, cache: BlockCache, slots: list[int], anchors: list[int], num_slots: int) -> None:
        self._cache, self._slots = cache, slots
        device = cache.device
        steps = torch.arange(num_slots, device=device)
        self.positions = torch.tensor(anchors, device=device)[:, None] + steps  # [R, S]
        places = cache.places(torch.tensor(slots, device=device)[:, None], self.positions)
        self._places = places.flatten()
        self._width = max(anchors) + num_slots
        self._masks = self._all_masks(anchors)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention [R, H, S, h] of a layer; see :class:`~dspark.drafters.block_model.Attend`."""
        self._cache.write(layer, self._places, (k, v))
        keys, values = self._cache.read(layer, self._slots, self._width)
        return F.scaled_dot_product_attention(
            q, keys, values, attn_mask=self._masks[layer], enable_gqa=q.shape[1] != keys.shape[1]
        )

    def _all_masks(self, anchors: list[int]) -> Sequence[Tensor | None]:
        """For each layer None, where all is seen, or bool broadcastable to [R, 1, S, W]."""
        spec, device = self._cache.spec, self.positions.device
        is_ragged = min(anchors) < max(anchors)
        if spec.sees_all and not is_ragged:
            return [None] * spec.num_layers
        keys = torch.arange(self._width, device=device)  # a key's place in the row is its position
        slots = self.positions[:, None, :, None]  # [R, 1, S, 1]
        anchor, last = slots[:, :, :1], slots[:, :, -1:]
        exists = keys <= last
        masks: list[Tensor | None] = []
        for layer in range(spec.num_layers):
            mask = keys <= slots if spec.is_causal(layer) else exists
            window = spec.window(layer)
            if window is not None and spec.window_from_anchor:
                mask = mask & (keys >= anchor - window)
            elif window is not None:
                mask = mask & (slots - keys < window) & (keys - slots < window)
            masks.append(mask)
        return masks
