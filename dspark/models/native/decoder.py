"""Llama-type decoders on the CPU through the kernels: the same function as the model's own forward.

One call runs the whole pass, so nothing is dispatched a layer. A row's logits are the same bits in
any pass, at any number of threads: every sum in the kernels has one order. The reference is the
model's own eager forward, compared at load (:mod:`dspark.models.probe`) and in the tests.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from dspark.models.base import EMBEDDING
from dspark.models.native.binding import WEIGHTS, Kernels, Layer, Model, Pass, floats, pointer
from dspark.models.native.compile import kernel_folder
from dspark.models.native.family import refusal, window_of
from dspark.models.native.packing import pack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from dspark.models.base import PassRow
    from dspark.models.kv_cache import KVCache


TURNS_AT_ONCE = 64
"""Positions whose rotary turns are computed in one call."""


class NativeDecoder:
    """A decoder's weights, as the kernels read them: no copy is made.

    Args:
        model: a causal model of a known family, in float32 on the CPU.
        cache_dir: where the compiled kernels lie; None takes ``default_cache_dir``.

    Raises:
        ValueError: the model is not of a known family; says why.
        NoCompilerError: there are no kernels here.
    """

    def __init__(self, model: Any, cache_dir: Path | None = None) -> None:
        reason = refusal(model)
        if reason is not None:
            raise ValueError(reason)
        self.kernels = Kernels(cache_dir or kernel_folder())
        self._body, config = model.model, model.config
        first = self._body.layers[0].self_attn
        self._weights = [layer_weights(layer) for layer in self._body.layers]
        self._windows = [window_of(layer.self_attn) for layer in self._body.layers]
        self._embedding = self._body.embed_tokens.weight.detach()
        self._final_norm = self._body.norm.weight.detach()
        self._head = model.lm_head.weight.detach()
        self._sizes = {
            "layers": len(self._weights),
            "hidden": config.hidden_size,
            "heads": config.num_attention_heads,
            "kv_heads": config.num_key_value_heads,
            "head_size": first.head_dim,
            "intermediate": config.intermediate_size,
            "vocab": self._head.shape[0],
        }
        self._norm = (self._body.norm.variance_epsilon, first.scaling)
        self._turns = (floats(0, first.head_dim), floats(0, first.head_dim))
        self._bound: WeakKeyDictionary[KVCache, tuple[Model, Any]] = WeakKeyDictionary()

    def forward(self, rows: list[PassRow], cache: KVCache) -> Tensor:
        """Float32 logits [M, V]; see :meth:`dspark.models.base.Target.forward`."""
        return self._run(rows, cache, ())[0]

    def forward_with_features(
        self, rows: list[PassRow], cache: KVCache, layers: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """Logits and features; see :meth:`dspark.models.base.Target.forward_with_features`."""
        return self._run(rows, cache, layers)

    def _run(self, rows: list[PassRow], cache: KVCache, taps: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        cos, sin = self._turns_up_to(cache.max_tokens)
        sizes = self._sizes
        packed = pack(rows, cache, vocab_size=self._embedding.shape[0])
        _space, places = workspace(sizes, packed.num_tokens)  # named, to live as long as the pass
        out = floats(packed.num_logits, sizes["vocab"])
        features = floats(packed.num_tokens, len(taps) * sizes["hidden"])
        feature_places = (ctypes.c_void_p * sizes["layers"])()
        for place, layer in enumerate(taps):
            start = place * sizes["hidden"]
            if layer == EMBEDDING:
                features[:, start : start + sizes["hidden"]] = self._embedding[packed.token_ids]
            else:
                feature_places[layer] = features.data_ptr() + 4 * start
        one = Pass(
            tokens=packed.num_tokens,
            rows=len(rows),
            logits=packed.num_logits,
            page_size=cache.page_size,
            threads=torch.get_num_threads(),
            feature_stride=features.shape[1],
            blocks=0,
            **packed.addresses(),
            **places,
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            out=out.data_ptr(),
            features=ctypes.addressof(feature_places),
        )
        self.kernels.decoder_pass(self._bind(cache)[0], one)
        return out, features

    def _bind(self, cache: KVCache) -> tuple[Model, Any]:
        """The model's structure over the pages of ``cache``, and the layers that it points to."""
        if cache not in self._bound:
            layers = bound_layers(self._weights, cache.keys, cache.values, self._windows)
            model = Model(
                **self._sizes,
                eps=self._norm[0],
                scale=self._norm[1],
                embedding=pointer(self._embedding),
                final_norm=pointer(self._final_norm),
                head=pointer(self._head),
                layer=ctypes.addressof(layers),
            )
            self._bound[cache] = (model, layers)
        return self._bound[cache]

    def _turns_up_to(self, num_positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [P, head_size] of all positions that a cache can hold, by the model's own module.

        In blocks of one size: the last bit of a position's may depend on its place in the call.
        """
        cos, sin = self._turns
        while cos.shape[0] < num_positions:
            positions = torch.arange(cos.shape[0], cos.shape[0] + TURNS_AT_ONCE)[None]
            more = self._body.rotary_emb(self._embedding[:1], positions)
            cos, sin = (torch.cat([old, new[0]]) for old, new in zip((cos, sin), more, strict=True))
        self._turns = (cos, sin)
        return cos, sin


def workspace(sizes: dict[str, int], num_tokens: int) -> tuple[Tensor, dict[str, int]]:
    """Space for a pass, to be kept as long as it runs, and the addresses in it by their names in ``Pass``."""
    q_width = sizes["heads"] * sizes["head_size"]
    widths = {
        "stream": sizes["hidden"],
        "normed": sizes["hidden"],
        "qkv": q_width + 2 * sizes["kv_heads"] * sizes["head_size"],
        "mixed": max(q_width, sizes["intermediate"]),
        "gate_up": 2 * sizes["intermediate"],
    }
    space = floats(num_tokens * sum(widths.values()))
    places, address = {}, space.data_ptr()
    for name, width in widths.items():
        places[name] = address
        address += 4 * width * num_tokens
    return space, places


def bound_layers(
    weights: Sequence[dict[str, Tensor | None]],
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    windows: Sequence[int],
) -> Any:
    """The array of layers that a ``Model`` points to; tensors must stay alive as long as it does."""
    layers = (Layer * len(weights))()
    for layer, named, k, v, window in zip(layers, weights, keys, values, windows, strict=True):
        for name, weight in named.items():
            setattr(layer, name, None if weight is None else pointer(weight))
        layer.keys, layer.values, layer.window = pointer(k), pointer(v), window
    return layers


def layer_weights(layer: Any) -> dict[str, Tensor | None]:
    attention, mlp = layer.self_attn, layer.mlp
    modules = {
        "input_norm": layer.input_layernorm,
        "q": attention.q_proj,
        "k": attention.k_proj,
        "v": attention.v_proj,
        "q_norm": getattr(attention, "q_norm", None),
        "k_norm": getattr(attention, "k_norm", None),
        "o": attention.o_proj,
        "post_norm": layer.post_attention_layernorm,
        "gate": mlp.gate_proj,
        "up": mlp.up_proj,
        "down": mlp.down_proj,
    }
    weights = {name: None if module is None else module.weight for name, module in modules.items()}
    weights |= {f"{name}_bias": modules[name].bias for name in ("q", "k", "v", "o")}
    # detached: the storage stays as it is even if the module is given another
    return {name: None if (weight := weights[name]) is None else weight.detach() for name in WEIGHTS}
