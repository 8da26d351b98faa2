"""Attention over ragged rows and a paged cache in one call, on CUDA: the backend ``varlen``.

The kernel is flash attention behind ``torch.nn.attention.varlen.varlen_attn``. Each row's keys are
read from its pages through a block table, so nothing is padded, gathered or masked, and the call has
the same shape whatever the rows' depths are.

What the kernel asks for (torch 2.13, flash attention 2): float16 or bfloat16, compute capability 8.0,
heads of at most 256 in multiples of 8, and pages of a multiple of 256 tokens (the checks of
``mha_varlen_fwd`` in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp of pytorch).
``num_splits=1`` sums a row's keys in one order whatever its neighbours are, and is also the only
value that is right with pages: more splits leave outputs unwritten
(https://github.com/pytorch/pytorch/issues/194167).

Shapes: queries ``[1, H, N, D]``, keys and values ``[1, Hkv, N, D]``, as the model passes them.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface

from dspark.models.attention import refuse_unknown
from dspark.models.attention_varlen_reference import varlen_attn_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from dspark.models.layout_varlen import VarlenLayout

NAME = "dspark_varlen"
REFERENCE_NAME = "dspark_varlen_reference"
PAGE_TOKENS = 256
"""Tokens a page: what the kernel's page size must be a multiple of."""

_NEEDED = frozenset({"block_table", "seqused_k", "num_splits", "enable_gqa", "window_size", "scale"})
"""Parameters of ``varlen_attn`` that came after its first release."""


def register() -> None:
    """Make kernel and reference known to transformers.

    No mask function is registered: transformers then builds no mask and does not look for one, which
    on CUDA would wait for the device in every pass.
    """
    AttentionInterface.register(NAME, attend_varlen)
    AttentionInterface.register(REFERENCE_NAME, attend_reference)


def attend_varlen(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **kwargs: Any):
    """Outputs [1, N, H, D] by the kernel of torch."""
    from torch.nn.attention.varlen import varlen_attn

    return _attend(module, query, key, value, kwargs, varlen_attn)


def attend_reference(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **kwargs: Any):
    """Outputs [1, N, H, D] by plain torch, on any device and slowly."""
    return _attend(module, query, key, value, kwargs, varlen_attn_reference)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kwargs: dict[str, Any],
    kernel: Callable[..., Any],
) -> tuple[Tensor, None]:
    layout: VarlenLayout = kwargs.pop("dspark_layout")
    window, scaling = kwargs.pop("sliding_window", None), kwargs.pop("scaling", None)
    refuse_unknown(module, kwargs)  # soft caps and sinks are among them
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    cache = layout.cache
    cache.write(layer, layout.write_index, key[0].transpose(0, 1), value[0].transpose(0, 1))
    layout.layers_seen.append(layer)
    out = kernel(
        query[0].transpose(0, 1),
        cache.keys[layer],
        cache.values[layer],
        layout.cu_seq_q,
        layout.cu_seq_k,
        layout.shape.max_q,
        layout.max_k,
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window_size=window_bounds(window),
        enable_gqa=query.shape[1] != key.shape[1],
        seqused_k=layout.seqused_k,
        block_table=layout.block_table,
        num_splits=1,
    )
    return out[None], None


def window_bounds(window: int | None) -> tuple[int, int]:
    """The kernel's (left, right) of a causal layer that sees ``window`` keys, the query's own included."""
    return (-1 if window is None else window - 1), 0


def kernel_refusal(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot run with this device, dtype and torch; None if it can."""
    if device.type != "cuda":
        return f"it needs a CUDA device, got {device.type}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in bfloat16 and float16 only, got {str(dtype).removeprefix('torch.')}"
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):
        return f"it needs compute capability 8.0, got {capability[0]}.{capability[1]}"
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return f"torch {torch.__version__} has no varlen_attn"
    return missing_parameters(varlen_attn)


def missing_parameters(varlen_attn: Callable[..., Any]) -> str | None:
    """Why this version of the call will not do; None if it has every parameter that is used."""
    missing = sorted(_NEEDED - set(inspect.signature(varlen_attn).parameters))
    return f"varlen_attn of torch {torch.__version__} lacks {', '.join(missing)}" if missing else None


def model_refusal(config: Any, head_dim: int) -> str | None:
    """Why the call cannot serve this model, by its text config; None if it can."""
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return f"it has no soft cap, and a {config.model_type} target needs one"
    if config.model_type == "gpt_oss":
        return f"it has no attention sinks, and a {config.model_type} target needs them"
    if head_dim > 256 or head_dim % 8:
        return f"it takes heads of at most 256 in multiples of 8, got {head_dim}"
    return None
