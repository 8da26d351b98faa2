"""The attention function that Hugging Face decoders call, and the backends behind it.

A decoder loaded with ``attn_implementation="dspark"`` calls :func:`attend` in every layer with the
flattened queries, keys and values of a pass, and with the pass's layout as a keyword. What a model
passes along is honoured (scaling, sliding window, soft cap, sinks) or refused by name.

Shapes: queries ``[1, H, P, D]``, keys and values ``[1, Hkv, P, D]``; P counts padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from dspark.models.attention_exact import attend_exact

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dspark.models.layout import AttentionGroup, PassLayout

NAME = "dspark"
EXACT_NAME = "dspark_exact"
_HARMLESS = frozenset(
    {
        "cache",
        "cache_position",
        "dropout",
        "is_causal",
        "logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)
"""Keywords that models pass along and that change nothing in a causal pass over our cache."""


def register() -> None:
    """Make both backends known to transformers; no mask is built for them."""
    AttentionInterface.register(NAME, attend)
    AttentionInterface.register(EXACT_NAME, _attend_exactly)
    for name in (NAME, EXACT_NAME):
        AttentionMaskInterface.register(name, _no_mask)


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The layout's groups carry the masks."""


def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **kwargs: Any):
    """Outputs [1, P, H, D] through ``scaled_dot_product_attention``, or plain products where it cannot."""
    return _attend(module, query, key, value, kwargs, _attend_sdpa)


def _attend_exactly(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **kwargs: Any):
    """Outputs [1, P, H, D] that no neighbour, padding, tile or thread count can change."""
    return _attend(module, query, key, value, kwargs, attend_exact)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, kwargs: dict[str, Any], backend: Any
):
    layout: PassLayout = kwargs.pop("dspark_layout")
    window, softcap = kwargs.pop("sliding_window", None), kwargs.pop("softcap", None)
    sinks, scaling = kwargs.pop("s_aux", None), kwargs.pop("scaling", None)
    refuse_unknown(module, kwargs)
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    count, cache = layout.num_tokens, layout.cache
    cache.write(
        layer, layout.write_index, key[0, :, :count].transpose(0, 1), value[0, :, :count].transpose(0, 1)
    )
    layout.layers_seen.append(layer)
    flat = query[0].transpose(0, 1)
    scale = flat.shape[-1] ** -0.5 if scaling is None else scaling
    outputs = []
    for group in layout.groups:
        if group.slot_range is not None:
            keys, values = cache.read_range(layer, *group.slot_range, group.num_keys)
        else:
            assert group.key_index is not None
            keys, values = cache.read_index(layer, group.key_index)
        out = backend(group.gather_queries(flat), keys, values, group, window, scale, softcap, sinks)
        outputs.append(group.scatter_outputs(out))
    padding = flat.shape[0] - count
    if padding:
        outputs.append(flat.new_zeros(padding, flat.shape[1], cache.shape.value_dim))
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs))[None], None


def refuse_unknown(module: nn.Module, kwargs: dict[str, Any]) -> None:
    """Raise ValueError for keywords of a model that change its attention in a way nobody implements here."""
    unknown = {k: v for k, v in kwargs.items() if k not in _HARMLESS and v is not None}
    if unknown or kwargs.get("is_causal") is False:
        names = ", ".join(sorted(unknown)) or "is_causal=False"
        raise ValueError(
            f"the attention of {type(module).__name__} passes {names}, which this engine does not implement; "
            "use a target without it"
        )


def _attend_sdpa(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    group: AttentionGroup,
    window: int | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Outputs [R, H, Q, D]; keys and values [R, Hkv, C, D] may be views."""
    bias = group.bias(window, query.dtype)
    if softcap is not None or sinks is not None:
        return attend_explicit(query, keys, values, bias, scale, softcap, sinks)
    grouped = query.shape[1] != keys.shape[1]
    return F.scaled_dot_product_attention(
        query, keys, values, attn_mask=bias, scale=scale, enable_gqa=grouped
    )


def attend_explicit(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Outputs [R, H, Q, D] by plain products: the reference, and the way for soft cap and sinks.

    Args:
        bias: additive mask [R, 1, Q, C].
        softcap: ``cap * tanh(score / cap)`` (Gemma 2).
        sinks: logits [H] that take probability without a value (gpt-oss).
    """
    repeat = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(repeat, 1), values.repeat_interleave(repeat, 1)
    scores = query @ keys.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = (scores + bias).float()
    if sinks is not None:
        column = sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], -1)
    weights = torch.softmax(scores, -1)[..., : keys.shape[2]]
    return weights.to(values.dtype) @ values
