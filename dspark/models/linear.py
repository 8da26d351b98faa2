"""Matrix products of a pass: the fast way on a CPU, and the way that no neighbour can change.

``F.linear`` is the reference. For few rows a CPU computes ``(W @ x.T).T`` up to four times faster,
and a single row is faster as two (a matrix-matrix kernel streams the weights with both cores, the
matrix-vector kernel does not), so the fast layer chooses by row count. Results differ from the
reference by float32 rounding. The row count at which it changes over is a constant, so that runs
can be repeated; :func:`measure_thresholds` finds it for another machine.

The invariant layer is ``F.linear`` at row counts for which this library build gives bitwise the
same row, which :func:`invariant_multiple` finds out by trying; the pass is padded to them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

ROW_COUNTS = (2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowThresholds:
    """Up to how many rows the transposed product is the faster one."""

    transposed_up_to: int

    def use_transposed(self, num_rows: int) -> bool:
        """True if ``(W @ x.T).T`` is to be used."""
        return num_rows <= self.transposed_up_to


DEFAULT_THRESHOLDS = RowThresholds(transposed_up_to=32)
"""From the 135M target's shapes in float32 on 2 x86-64 cores (torch 2.13), milliseconds of all its
linear layers, reference / transposed, at 1, 2, 4, 8, 16, 32, 64 rows: 45/18, 73/18, 63/26, 57/45,
68/59, 92/95, 163/150."""


class RowLinear(nn.Module):
    """A linear layer that picks its product by row count; shares the weights it is given."""

    def __init__(self, linear: nn.Linear, thresholds: RowThresholds) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.thresholds = thresholds

    def forward(self, x: Tensor) -> Tensor:
        """``x @ W.T + b`` for x [..., in_features]."""
        rows = x.numel() // self.in_features
        if not self.thresholds.use_transposed(rows):
            return F.linear(x, self.weight, self.bias)
        return transposed_linear(x, self.weight, self.bias)

    def shares(self, x: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        """The output split along its last axis, each share [..., size] contiguous."""
        rows = x.numel() // self.in_features
        if not self.thresholds.use_transposed(rows):
            return tuple(share.contiguous() for share in self(x).split(sizes, -1))
        columns = _transposed_product(x, self.weight)
        biases = [None] * len(sizes) if self.bias is None else self.bias.split(sizes)
        return tuple(
            _rows_of(share, bias, x) for share, bias in zip(columns.split(sizes), biases, strict=True)
        )


def transposed_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear`` computed as ``(W @ x.T).T``; one row is computed as two."""
    return _rows_of(_transposed_product(x, weight), bias, x)


def _transposed_product(x: Tensor, weight: Tensor) -> Tensor:
    """``W @ x.T``, [out_features, rows]."""
    flat = x.reshape(-1, weight.shape[1])
    rows = flat.shape[0]
    if rows == 1:
        flat = flat.repeat(2, 1)  # a view with stride 0 would leave the BLAS path
    return torch.mm(weight, flat.t())[:, :rows]


def _rows_of(columns: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """Contiguous [..., out_features] of the product's columns, with the bias."""
    out = columns.t().contiguous()
    if bias is not None:
        out += bias
    return out.view(*x.shape[:-1], columns.shape[0])


def measure_thresholds(layers: list[nn.Linear], *, repeats: int = 5) -> RowThresholds:
    """The largest row count up to which the transposed product is no slower over ``layers``.

    Takes about a second for a 135M model. Both products alternate and the fastest of the repeats
    counts, so that other work on the machine does not decide.
    """
    best = 0
    with torch.inference_mode():
        for rows in ROW_COUNTS:
            inputs = {layer.in_features: torch.ones(rows, layer.in_features) for layer in layers}
            seconds: dict[Callable[..., Tensor], float] = {F.linear: math.inf, transposed_linear: math.inf}
            for _ in range(1 + repeats):  # the first run warms up, and is never the fastest
                for product in seconds:
                    start = time.perf_counter()
                    for layer in layers:
                        product(inputs[layer.in_features], layer.weight)
                    seconds[product] = min(seconds[product], time.perf_counter() - start)
            if seconds[transposed_linear] > seconds[F.linear]:
                break
            best = rows
    return RowThresholds(transposed_up_to=best)


def install_row_linears(model: nn.Module, thresholds: RowThresholds) -> None:
    """Replace every plain ``nn.Linear`` of ``model`` by a :class:`RowLinear` on the same weights."""
    for parent in model.modules():
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, RowLinear(child, thresholds))


class RowwiseActivation(nn.Module):
    """An activation applied to one token at a time.

    Elementwise kernels cut long inputs into pieces, one a thread, and a piece that does not fill the
    last vector ends in scalar code, whose exponential may differ in the last bit. A row of its own
    is always cut alike.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """The activation of x [..., features]."""
        out = torch.empty_like(x)
        for row, result in zip(x.flatten(0, -2), out.flatten(0, -2), strict=True):
            result.copy_(self.activation(row))
        return out


def install_rowwise_activations(model: nn.Module) -> None:
    """Wrap the activations of ``model`` (the modules called ``act_fn`` or ``activation_fn``)."""
    for parent in model.modules():
        for name, child in list(parent.named_children()):
            if name in ("act_fn", "activation_fn", "act"):
                setattr(parent, name, RowwiseActivation(child))


def invariant_multiple(shapes: set[tuple[int, int]], *, candidates: tuple[int, ...] = (8, 16, 32)) -> int:
    """The smallest row multiple at which ``F.linear`` gives a row the same bits in any pass.

    Tries every (out, in) shape at several multiples and row offsets against one large product.

    Raises:
        ValueError: no candidate works with this library build.
    """
    generator = torch.Generator().manual_seed(0)
    for multiple in candidates:
        if all(_is_invariant(shape, multiple, generator) for shape in shapes):
            return multiple
    raise ValueError(
        "numerics=invariant needs a row count at which this build of torch computes a row alike in any pass, "
        f"got none among multiples of {candidates}; use numerics=fast"
    )


def _is_invariant(shape: tuple[int, int], multiple: int, generator: torch.Generator) -> bool:
    outputs, inputs = shape
    weight = torch.randn(outputs, inputs, generator=generator)
    x = torch.randn(13 * multiple, inputs, generator=generator)
    whole = F.linear(x, weight)
    return all(
        torch.equal(
            F.linear(x[offset : offset + n * multiple], weight), whole[offset : offset + n * multiple]
        )
        for n in (1, 2, 3, 5, 12)
        for offset in (0, 1, 3)
    )
