"""Which attention a target gets: what was asked for, or what fits device, dtype and model best."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from dspark.models import attention, attention_varlen

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

AttentionKind = Literal["auto", "sdpa", "varlen", "varlen_reference"]
VARLEN_NAMES = (attention_varlen.NAME, attention_varlen.REFERENCE_NAME)


def register() -> None:
    """Make every attention function known to transformers."""
    attention.register()
    attention_varlen.register()


def choose_attention(
    asked: AttentionKind, *, numerics: str, device: torch.device, dtype: torch.dtype, config: Any
) -> str:
    """The registered name of the attention function.

    ``auto`` is ``varlen`` on CUDA and ``sdpa`` elsewhere; where the kernel cannot serve, it is ``sdpa``
    and one line says why. ``varlen_reference`` is the kernel's call in plain torch, for tests.

    Args:
        asked: of the configuration.
        numerics: ``invariant`` has an attention of its own.
        device: of the model.
        dtype: of the model.
        config: the model's text config.

    Raises:
        ValueError: what was asked for cannot serve here.
    """
    if numerics == "invariant":
        if asked != "auto":
            raise ValueError(
                f"numerics=invariant has an attention of its own, got attention={asked}; "
                "use attention=auto or numerics=fast"
            )
        return attention.EXACT_NAME
    if asked == "sdpa" or (asked == "auto" and device.type != "cuda"):
        return attention.NAME
    refusal = attention_varlen.model_refusal(config, head_dim_of(config))
    if asked == "varlen_reference":
        if refusal is not None:
            raise ValueError(f"attention=varlen_reference cannot serve here: {refusal}; use attention=sdpa")
        return attention_varlen.REFERENCE_NAME
    refusal = attention_varlen.kernel_refusal(device, dtype) or refusal
    if refusal is None:
        return attention_varlen.NAME
    if asked == "varlen":
        raise ValueError(f"attention=varlen cannot serve here: {refusal}; use attention=auto or sdpa")
    logger.warning("attention is sdpa instead of varlen: %s", refusal)
    return attention.NAME


def kind_of(name: str) -> AttentionKind:
    """What a draft model asks for, so that it attends as the target with this registered name does."""
    kinds: dict[str, AttentionKind] = {
        attention.NAME: "sdpa",
        attention_varlen.REFERENCE_NAME: "varlen_reference",
    }
    return kinds.get(name, "auto")


def head_dim_of(config: Any) -> int:
    """Size of a head by a model's text config."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def check_page_size(name: str, page_size: int | None) -> int | None:
    """The page size of a cache for this attention; None stands for one page a row.

    Raises:
        ValueError: the kernel cannot read such pages.
    """
    if name not in VARLEN_NAMES:
        return page_size
    size = page_size or attention_varlen.PAGE_TOKENS
    if name == attention_varlen.NAME and size % attention_varlen.PAGE_TOKENS:
        raise ValueError(
            f"attention=varlen reads pages in multiples of {attention_varlen.PAGE_TOKENS} tokens, "
            f"got page_size={size}"
        )
    return size
