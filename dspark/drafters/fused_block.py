"""A block backbone in layers made for drafting on a CPU: products over few rows, and fewer of them.

Projections of one input are one product with a stacked matrix; the lower part of the attention's, keys
and values, serves the context. What is computed is the same up to rounding.
"""

from __future__ import annotations

import copy
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from dspark.models.linear import DEFAULT_THRESHOLDS, RowLinear, install_row_linears
from dspark.models.native.block import NativeBlock
from dspark.models.native.family import MAX_HEAD_SIZE
from dspark.models.native.linear import NativeLinear, install_native_linears

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark.drafters.block_model import BlockAttention, BlockBackbone, GatedMLP
    from dspark.models.native.binding import Kernels

    Made = Callable[[nn.Linear], RowLinear | NativeLinear]


_Model = TypeVar("_Model", bound=nn.Module)


def for_drafting(model: BlockBackbone, kernels: Kernels | None = None) -> BlockBackbone:
    """The same weights in layers that draft fast; the given model, perhaps in training, keeps its own.

    Stacked weights are copies, the others are shared.

    Args:
        model: on any device; what is not float32 on a CPU keeps its kind of layers.
        kernels: the target's, where it has some; otherwise torch's products serve.
    """
    ours = with_shared_weights(model)
    weight = ours.fc.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return ours

    def made(linear: nn.Linear) -> RowLinear | NativeLinear:
        return RowLinear(linear, DEFAULT_THRESHOLDS) if kernels is None else NativeLinear(linear, kernels)

    if not runs_natively(model, kernels):  # the kernels take the layers as they are
        for layer in ours.block_layers():
            _stack_attention(layer.self_attn, made)
            _stack_mlp(layer.mlp, made)
    if kernels is None:
        install_row_linears(ours, DEFAULT_THRESHOLDS)
    else:
        install_native_linears(ours, kernels)
    return ours


def with_shared_weights(model: _Model) -> _Model:
    """A copy for drafting whose parameters and buffers are the model's own tensors."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    return copy.deepcopy(model, shared).eval()


def runs_natively(model: BlockBackbone, kernels: Kernels | None) -> bool:
    """True where :func:`native_block` gives one."""
    weight, spec = model.fc.weight, model.spec
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and spec.head_dim <= MAX_HEAD_SIZE
    return kernels is not None and fits and spec.sees_all


def native_block(model: BlockBackbone, kernels: Kernels | None) -> NativeBlock | None:
    """The backbone through the target's kernels; None where torch's layers must do: another device or
    dtype, or slots that do not all see the same.
    """
    if kernels is None or not runs_natively(model, kernels):
        return None
    spec = model.spec
    return NativeBlock(
        model,
        kernels,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_dim,
        turns=lambda positions: model.rotary(positions, torch.float32),
    )


def _stack_attention(attention: BlockAttention, made: Made) -> None:
    whole = _stacked((attention.q_proj, attention.k_proj, attention.v_proj))
    first = attention.q_proj.out_features
    below = _linear(whole.weight[first:], None if whole.bias is None else whole.bias[first:])
    attention.stacked = (made(whole), made(below))


def _stack_mlp(mlp: GatedMLP, made: Made) -> None:
    mlp.stacked = made(_stacked((mlp.gate_proj, mlp.up_proj)))


def _stacked(parts: Sequence[nn.Linear]) -> nn.Linear:
    """One layer for all parts, whose weights become views of its own."""
    weight = torch.cat([part.weight.data for part in parts])
    biases = [part.bias.data for part in parts if part.bias is not None]
    for part, share in zip(parts, weight.split([part.out_features for part in parts]), strict=True):
        part.weight = nn.Parameter(share, requires_grad=False)  # the weights exist once
    return _linear(weight, torch.cat(biases) if biases else None)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear
