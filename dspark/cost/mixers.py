"""What a layer mixes tokens with: its weights, the FLOPs a context costs, and the cache it reads.

Matrix weights are multiplied once a token (2 FLOPs each); vector weights (norms, biases, sinks) are
read, and their FLOPs left out. Norms, rotary embeddings, activations and the softmax are left out
too, as is usual for rooflines of decoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dspark.cost.pass_size import PassSize

STATE_BYTES = 4
"""Of an element of a recurrent state, which is kept in float32 whatever the dtype of the weights."""


class Mixer(ABC):
    """Abstract; concrete mixers are frozen dataclasses."""

    @abstractmethod
    def matrix_parameters(self, hidden: int) -> int:
        """Weights that every token is multiplied by."""

    @abstractmethod
    def vector_parameters(self, hidden: int) -> int:
        """Weights that are no matrices: read in a pass, at no FLOPs worth counting."""

    @abstractmethod
    def context_flops(self, size: PassSize) -> Tensor:
        """FLOPs of a token beyond its products with matrices; mean over the pass."""

    @abstractmethod
    def cache_bytes(self, size: PassSize, bytes_per_value: int) -> Tensor:
        """Bytes of cache or state that a row reads and writes in the pass; mean over the rows."""

    @abstractmethod
    def kv_bytes_per_token(self, bytes_per_value: int) -> float:
        """Bytes of cache that a token adds; a window that is full gives as many back."""

    @abstractmethod
    def held_bytes(self, context_tokens: float, bytes_per_value: int) -> float:
        """Bytes of cache or state that a row of that context holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Mixer):
    """Softmax attention with grouped heads: keys and values of a row are read once a pass.

    FLOPs of a token are ``4 · heads · head_dim · seen``: two products of two FLOPs each.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None  # newest tokens that are seen; None: all
    output_gate: bool = False  # the query projection is twice as wide (Qwen3.5)
    values_are_keys: bool = False  # one projection gives both, and both are cached (Gemma 4)
    norms: bool = False  # of queries and keys
    input_bias: bool = False  # of the q, k and v projections
    output_bias: bool = False

    def matrix_parameters(self, hidden: int) -> int:
        """Query, key, value and output projections."""
        return hidden * (self._input_width + self.num_heads * self.head_dim)

    def vector_parameters(self, hidden: int) -> int:
        """Norms of queries and keys, and biases."""
        biases = self.input_bias * self._input_width + self.output_bias * hidden
        return biases + self.norms * 2 * self.head_dim

    def context_flops(self, size: PassSize) -> Tensor:
        """Scores and weighted sums."""
        return 4 * self.num_heads * self.head_dim * _within(size.seen_per_token, self.window)

    def cache_bytes(self, size: PassSize, bytes_per_value: int) -> Tensor:
        """What is cached and within the window is read, the new tokens are written."""
        touched = _within(size.context_per_row, self.window) + size.tokens_per_row
        return self.kv_bytes_per_token(bytes_per_value) * touched

    def kv_bytes_per_token(self, bytes_per_value: int) -> float:
        """A key and a value of every key/value head."""
        return 2 * self.num_kv_heads * self.head_dim * bytes_per_value

    def held_bytes(self, context_tokens: float, bytes_per_value: int) -> float:
        """Keys and values of the tokens within the window."""
        held = context_tokens if self.window is None else min(context_tokens, self.window)
        return held * self.kv_bytes_per_token(bytes_per_value)

    @property
    def _input_width(self) -> int:
        queries = self.num_heads * (2 if self.output_gate else 1)
        return self.head_dim * (queries + self.num_kv_heads * (1 if self.values_are_keys else 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention(Mixer):
    """Gated delta rule (arXiv 2412.06464): a matrix of state a head in place of keys and values.

    The state does not grow with the context. It is read and written once a pass, however many
    tokens of a row are in it. FLOPs of a token are three products with the state, ``Sᵀk``, the
    rank-one update and ``Sᵀq``, of 2 FLOPs an element, and the short convolution.
    """

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    kernel: int  # of the convolution over queries, keys and values

    def matrix_parameters(self, hidden: int) -> int:
        """Projections to q, k, v, the output gate, two gates a head; and the output's."""
        values = self.num_value_heads * self.value_dim
        return hidden * (self._convolved + 2 * values + 2 * self.num_value_heads)

    def vector_parameters(self, hidden: int) -> int:
        """Convolution, step sizes and decays, and the output's norm."""
        return self._convolved * self.kernel + 2 * self.num_value_heads + self.value_dim

    def context_flops(self, size: PassSize) -> Tensor:
        """Products with the state, and the convolution; the same at any context."""
        return torch.full_like(size.tokens, 6 * self._state + 2 * self.kernel * self._convolved)

    def cache_bytes(self, size: PassSize, bytes_per_value: int) -> Tensor:
        """State in, state out."""
        return torch.full_like(size.tokens, 2 * self.held_bytes(0, bytes_per_value))

    def kv_bytes_per_token(self, bytes_per_value: int) -> float:
        """None: the state has one size."""
        return 0.0

    def held_bytes(self, context_tokens: float, bytes_per_value: int) -> float:
        """The state, and the tail of the convolution's input."""
        return self._state * STATE_BYTES + (self.kernel - 1) * self._convolved * bytes_per_value

    @property
    def _state(self) -> int:
        return self.num_value_heads * self.key_dim * self.value_dim

    @property
    def _convolved(self) -> int:
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim


def _within(tokens: Tensor, window: int | None) -> Tensor:
    """The tokens that a window leaves."""
    return tokens if window is None else tokens.clamp(max=window)
