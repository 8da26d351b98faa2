"""Whether a target's passes can be captured, found out by capturing some and looking at what they give."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from dspark.models import attention_varlen
from dspark.models.base import PassRow
from dspark.models.cuda_graphs import CudaCapture, GraphRunner
from dspark.models.graph_buckets import MAX_ROW_TOKENS
from dspark.models.kv_cache import KVCache
from dspark.models.layout_varlen import build_varlen_layout

if TYPE_CHECKING:
    from dspark.models.cuda_graphs import Capture
    from dspark.models.target import HFTarget

logger = logging.getLogger(__name__)

_TOLERANCE = 0.05
"""Of the largest logit: a padded pass may use other matrix kernels than the pass itself."""


def install_graphs(
    target: HFTarget, asked: bool | None, capture: Capture | None = None
) -> GraphRunner | None:
    """The runner of a target's graphs, tried; None without graphs.

    Args:
        target: a loaded target, probed without graphs.
        asked: None: where the attention is the CUDA kernel and captures work; otherwise one line says why.
        capture: the CUDA one by default.

    Raises:
        ValueError: graphs are asked for and cannot be had.
    """
    can = target.attention == attention_varlen.NAME or capture is not None
    if asked is False or (asked is None and not can):
        return None
    if not can:
        raise ValueError(
            f"cuda_graphs=true needs attention=varlen on a CUDA device, got {target.attention} on "
            f"{target.device.type}; use cuda_graphs=null, or device=cuda with dtype=bfloat16"
        )
    runner = GraphRunner(target.logits_of, capture or CudaCapture(), vocab_size=target.vocab_size)
    refusal = _try(target, runner)
    if refusal is None:
        return runner
    if asked:
        raise ValueError(f"cuda_graphs=true cannot serve {target.name}: {refusal}; use cuda_graphs=false")
    logger.warning("passes run without CUDA graphs: %s", refusal)
    return None


@torch.inference_mode()
def _try(target: HFTarget, runner: GraphRunner) -> str | None:
    """What is wrong with captured passes; None if they equal eager ones, also when replayed with others."""
    length = min(12, target.max_context)
    cache = KVCache(
        target.cache_shape,
        num_slots=2,
        max_tokens=length,
        dtype=target.dtype,
        device=target.device,
        page_size=attention_varlen.PAGE_TOKENS,
        scratch_tokens=MAX_ROW_TOKENS,
    )
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(target.vocab_size, (2, length), generator=generator).tolist()
    half = length // 2
    # the same bucket (8 tokens, 2 rows) with other tokens, lengths and starts
    passes = [
        [_row(0, tokens[0], 0, half), _row(1, tokens[1], 0, 1)],
        [_row(0, tokens[0], 2, half), _row(1, tokens[1], 1, 1 + max(1, half // 2))],
    ]
    for rows in passes:
        try:
            replayed = runner.run(rows, cache)
        except RuntimeError as error:
            return f"the pass cannot be captured ({str(error).strip().splitlines()[0]})"
        assert replayed is not None, "a short pass is for a graph"
        eager = target.logits_of(build_varlen_layout(rows, cache)).float()
        scale = float(eager.abs().max())
        error = float((replayed[0] - eager).abs().max())
        if not error <= _TOLERANCE * (1 + scale):
            return (
                f"a replayed pass gives other logits than the pass itself (difference {error:.2g}, "
                f"largest logit {scale:.2g})"
            )
    return None


def _row(slot: int, tokens: list[int], start: int, stop: int) -> PassRow:
    return PassRow(slot=slot, start=start, token_ids=tokens[start:stop], num_logits=stop - start)
