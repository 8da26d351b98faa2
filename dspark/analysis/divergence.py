"""Where two runs of one request first part, and by how little: rounding, or a fault?

In ``fast`` numerics a row's logits depend on its company by float32 rounding, so a near tie can
fall either way. A first divergence with a margin of about 1e-4 is such a tie; a large one is a
fault in the engine. Everything after the first divergence follows from it and says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dspark.models.base import PassRow
from dspark.sampling import Position, adjust, distribution
from dspark.seeding import Purpose, exponential_race, request_seed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from dspark.models.target import HFTarget
    from dspark.types import Completion, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first output token at which two runs of one request differ."""

    request_id: str
    position: int  # output tokens before it
    reference_token: int | None  # None: the reference ended there
    other_token: int | None
    logit_margin: float | None  # score of the reference's token minus the other's; None if one ended


def first_divergences(
    target: HFTarget,
    reference: Mapping[str, Completion],
    other: Mapping[str, Completion],
    *,
    requests: Iterable[Request] = (),
    seed: int = 0,
) -> list[Divergence]:
    """The first divergence of every request that both runs completed differently.

    Args:
        target: computes the margins, one pass a divergence.
        reference: completions by request id.
        other: completions to compare.
        requests: what was asked; needed where penalties or a temperature above 0 shape the choice,
            whose margin is then that of ``log p + g`` under coupled verification (in nats).
        seed: the engine's seed, for requests without their own.
    """
    asked = {request.request_id: request for request in requests}
    found = []
    for request_id in reference.keys() & other.keys():
        a, b = reference[request_id].token_ids, other[request_id].token_ids
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            x, y = (ids[at] if at < len(ids) else None for ids in (a, b))
            margin = None
            if x is not None and y is not None:
                prefix = [*reference[request_id].prompt_ids, *a[:at]]
                scores = _scores(target, prefix, len(prefix) - at, asked.get(request_id), seed)
                margin = float(scores[x] - scores[y])
                if not math.isfinite(margin):  # a token just outside top-k or top-p: compare without the cut
                    scores = _scores(target, prefix, len(prefix) - at, asked.get(request_id), seed, cut=False)
                    margin = float(scores[x] - scores[y])
            found.append(
                Divergence(
                    request_id=request_id, position=at, reference_token=x, other_token=y, logit_margin=margin
                )
            )
    return sorted(found, key=lambda divergence: (divergence.position, divergence.request_id))


@torch.inference_mode()
def _scores(
    target: HFTarget,
    prefix: list[int],
    num_prompt: int,
    request: Request | None,
    seed: int,
    *,
    cut: bool = True,
) -> Tensor:
    """What the next token maximises [V]: adjusted logits, or log p + g for a sampled request."""
    cache = target.new_cache(1, len(prefix))
    cache.reserve(0, len(prefix))
    logits = target.forward([PassRow(slot=0, start=0, token_ids=prefix, num_logits=1)], cache)
    if request is None:
        return logits[0]
    params = request.params if cut else replace(request.params, top_k=0, top_p=1.0)
    eos = target.eos_token_ids if params.eos_token_ids is None else params.eos_token_ids
    at = Position(params=params, prefix=prefix, drafted=(), num_prompt=num_prompt, eos_token_ids=eos)
    logits = adjust(logits, [at])
    if params.temperature == 0:
        return logits[0]
    own = request_seed(seed, request.request_id) if params.seed is None else params.seed & ((1 << 63) - 1)
    where = torch.tensor([len(prefix)], device=logits.device)
    noise = exponential_race(
        torch.tensor([own], device=logits.device), where, Purpose.TARGET, logits.shape[1]
    )
    return (distribution(logits, [at]).log() - noise.log())[0]
