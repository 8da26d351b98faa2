"""The structures of ``kernels/decoder.cpp`` and the calls that take them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

from dspark.models.native.compile import load_kernels

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

WEIGHTS = (
    *("input_norm", "q", "k", "v", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm", "o", "o_bias"),
    *("post_norm", "gate", "up", "down"),
)
"""A layer's weights, in the order of the structure."""


class Layer(ctypes.Structure):
    """One decoder layer: its weights, its pages, its sliding window."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (*WEIGHTS, "keys", "values")),
        ("window", ctypes.c_int64),
    )


class Model(ctypes.Structure):
    """A decoder's sizes and the weights outside its layers."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("layers", "hidden", "heads", "kv_heads", "head_size", "intermediate", "vocab")
        ),
        ("eps", ctypes.c_double),
        ("scale", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("embedding", "final_norm", "head", "layer")),
    )


class Pass(ctypes.Structure):
    """One pass: where its tokens are and go, and the space to work in."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("tokens", "rows", "logits", "page_size", "threads", "feature_stride", "blocks")
        ),
        *((name, ctypes.c_void_p) for name in ("ids", "positions", "write", "logits_index", "row", "pages")),
        *(
            (name, ctypes.c_void_p)
            for name in ("cos", "sin", "stream", "normed", "qkv", "mixed", "gate_up", "out", "features")
        ),
    )


class Kernels:
    """The compiled kernels, called with checked tensors.

    Raises:
        NoCompilerError: see ``load_kernels``.
    """

    def __init__(self, cache_dir: Path) -> None:
        library = load_kernels(cache_dir)
        self._decoder_pass = library.dspark_decoder_pass
        self._decoder_pass.argtypes, self._decoder_pass.restype = [ctypes.c_void_p] * 2, None
        self._context = library.dspark_context
        self._context.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64]
        self._context.restype = None
        self._linear = library.dspark_linear
        self._linear.argtypes, self._linear.restype = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 4, None
        library.dspark_vector_width.restype = ctypes.c_int64
        self.vector_width: int = library.dspark_vector_width()

    def decoder_pass(self, model: Model, one: Pass) -> None:
        """Runs the pass; every pointer must stay alive during the call."""
        self._decoder_pass(ctypes.addressof(model), ctypes.addressof(one))

    def context(self, model: Model, one: Pass, features: Tensor, fc: Tensor, norm: Tensor) -> None:
        """Writes keys and values of the pass's tokens, from features [N, w] that ``fc`` [d, w] mixes.

        Raises:
            ValueError: features of another number of tokens, or of another width.
        """
        if features.shape != (one.tokens, fc.shape[1]):
            raise ValueError(
                f"the features of {one.tokens} tokens must have {fc.shape[1]} numbers each, got "
                f"{list(features.shape)}: the drafter was made for another target"
            )
        addresses = [pointer(tensor) for tensor in (features, fc, norm)]
        self._context(ctypes.addressof(model), ctypes.addressof(one), *addresses, features.shape[1])

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x @ weight.T + bias`` for x [N, K] and weight [M, K], float32 on the CPU."""
        assert x.shape[1] == weight.shape[1], "inner sizes differ"
        out = floats(x.shape[0], weight.shape[0])
        self._linear(
            pointer(weight),
            None if bias is None else pointer(bias),
            pointer(x),
            out.data_ptr(),
            weight.shape[0],
            x.shape[0],
            x.shape[1],
            torch.get_num_threads(),
        )
        return out


def floats(*size: int) -> Tensor:
    """Space for float32 on the CPU, whatever torch's defaults are."""
    return torch.empty(*size, dtype=torch.float32, device="cpu")


def pointer(tensor: Tensor) -> int:
    """The address of a tensor that the kernels can read.

    Raises:
        ValueError: they cannot.
    """
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(f"the CPU kernels read contiguous CPU tensors, got one on {tensor.device}")
    if tensor.dtype not in (torch.float32, torch.int64):
        raise ValueError(f"the CPU kernels read float32 and int64, got {tensor.dtype}")
    return tensor.data_ptr()
