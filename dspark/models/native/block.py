"""Layers that draft a block through the kernels: the torch layers' function, in two calls a draft.

A draft's context enters by keys and values alone, and the slots of a block see each other; everything
else is a decoder pass. The reference is the drafter's own torch forward, compared in the tests.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from dspark.models.native.binding import Model, Pass, floats, pointer
from dspark.models.native.decoder import bound_layers, layer_weights, workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from dspark.models.native.binding import Kernels


class NativeBlock:
    """A block backbone's weights, as the kernels read them: no copy is made.

    Args:
        model: embedding, ``fc``, norms and layers named as a block backbone's, float32 on the CPU.
        kernels: compiled.
        num_heads: of queries.
        num_kv_heads: of keys and values.
        head_size: at most ``family.MAX_HEAD_SIZE``.
        turns: cosine and sine [P, h] of integer positions [P].
    """

    def __init__(
        self,
        model: Any,
        kernels: Kernels,
        *,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        turns: Callable[[Tensor], tuple[Tensor, Tensor]],
    ) -> None:
        self._kernels = kernels
        self._weights = [layer_weights(layer) for layer in model.layers]
        self._tables = {
            name: module.weight.detach()
            for name, module in (
                ("embedding", model.embed_tokens),
                ("fc", model.fc),
                ("context_norm", model.hidden_norm),
                ("final_norm", model.norm),
            )
        }
        gate = self._weights[0]["gate"]
        assert gate is not None, "every layer has a gate"
        self._sizes = {
            "layers": len(self._weights),
            "hidden": self._tables["fc"].shape[0],
            "heads": num_heads,
            "kv_heads": num_kv_heads,
            "head_size": head_size,
            "intermediate": gate.shape[0],
            "vocab": 0,
        }
        self._eps = model.norm.eps
        self._turns_of = turns
        self._turns = (floats(0, head_size), floats(0, head_size))
        self._bound: tuple[Model, Any] | None = None
        self._places = 0
        self._max_tokens = 0

    def bind(self, keys: Sequence[Tensor], values: Sequence[Tensor], max_tokens: int) -> None:
        """Use this cache from now on.

        Args:
            keys: a layer each, [num_slots * max_tokens, num_kv_heads, head_size].
            values: like the keys.
            max_tokens: positions of a slot.
        """
        layers = bound_layers(self._weights, keys, values, [0] * len(self._weights))
        model = Model(
            **self._sizes,
            eps=self._eps,
            scale=self._sizes["head_size"] ** -0.5,
            embedding=pointer(self._tables["embedding"]),
            final_norm=pointer(self._tables["final_norm"]),
            head=None,
            layer=ctypes.addressof(layers),
        )
        self._bound = (model, layers)
        self._places, self._max_tokens = keys[0].shape[0], max_tokens
        turns = self._turns_of(torch.arange(max_tokens))
        self._turns = (turns[0].contiguous(), turns[1].contiguous())

    def write_context(self, features: Tensor, slots: list[int], positions: list[int]) -> None:
        """Keys and values of context tokens, written to the cache.

        Args:
            features: float [N, w].
            slots: N.
            positions: N.
        """
        assert self._bound is not None, "bind before write_context"
        space, one, kept = self._pass(positions, self._written(slots, positions), ids=[], rows=[], tables=[])
        self._kernels.context(
            self._bound[0],
            one,
            features.float().contiguous(),
            self._tables["fc"],
            self._tables["context_norm"],
        )
        del space, kept  # they had to live until here

    def run(self, slots: list[int], anchors: list[int], token_ids: list[list[int]]) -> Tensor:
        """Float [R, S, d]: outputs after the last norm of blocks of S tokens each.

        Args:
            slots: of the rows, R; each holds context up to its anchor.
            anchors: each block's first position.
            token_ids: R blocks of the same length.
        """
        assert self._bound is not None, "bind before run"
        size = len(token_ids[0])
        owners = [slot for slot in slots for _ in range(size)]
        positions = [anchor + k for anchor in anchors for k in range(size)]
        rows = [n for row, anchor in enumerate(anchors) for n in (row * size, size, anchor, row)]
        ids = [token for block in token_ids for token in block]
        space, one, kept = self._pass(
            positions, self._written(owners, positions), ids=ids, rows=rows, tables=slots
        )
        out = floats(len(slots), size, self._sizes["hidden"])
        features = (ctypes.c_void_p * self._sizes["layers"])()  # none is asked for
        one.rows, one.logits, one.blocks = len(slots), len(ids), 1
        one.out, one.features = out.data_ptr(), ctypes.addressof(features)
        self._kernels.decoder_pass(self._bound[0], one)
        del space, kept  # they had to live until here
        return out

    def _written(self, slots: list[int], positions: list[int]) -> list[int]:
        """Where the tokens' keys and values go.

        Raises:
            ValueError: outside the cache, where the kernels would write to foreign memory.
        """
        places = [slot * self._max_tokens + place for slot, place in zip(slots, positions, strict=True)]
        if not 0 <= min(positions) <= max(positions) < self._max_tokens or max(places) >= self._places:
            raise ValueError(
                f"a block's tokens must lie in [0, {self._max_tokens}) of {self._places // self._max_tokens} "
                f"slots, got positions {min(positions)} to {max(positions)} of slots up to {max(slots)}"
            )
        return places

    def _pass(
        self, positions: list[int], written: list[int], *, ids: list[int], rows: list[int], tables: list[int]
    ) -> tuple[Tensor, Pass, Tensor]:
        """Working space, the pass, and its numbers; the first and the last must outlive the call."""
        if ids and not 0 <= min(ids) <= max(ids) < len(self._tables["embedding"]):
            raise ValueError(
                f"token ids must lie in [0, {len(self._tables['embedding'])}), got {min(ids)} to {max(ids)}"
            )
        count = len(positions)
        arrays = {
            "positions": positions,
            "write": written,
            "ids": ids,
            "logits_index": list(range(len(ids))),
            "row": rows,
            "pages": tables,
        }
        numbers = torch.tensor([n for array in arrays.values() for n in array], dtype=torch.int64)
        addresses, address = {}, numbers.data_ptr()
        for name, array in arrays.items():
            addresses[name] = address
            address += 8 * len(array)
        space, places = workspace(self._sizes, count)
        one = Pass(
            tokens=count,
            rows=0,
            logits=0,
            page_size=self._max_tokens,
            threads=torch.get_num_threads(),
            feature_stride=0,
            blocks=0,
            **addresses,
            **places,
            cos=self._turns[0].data_ptr(),
            sin=self._turns[1].data_ptr(),
            out=None,
            features=None,
        )
        return space, one, numbers
