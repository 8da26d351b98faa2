"""The one distribution that tokens are drafted from, verified against and emitted from.

Order: repetition penalty, forbidden end tokens (``min_new_tokens``), temperature, top-k, top-p,
softmax. Each step is a pure function of the logits and the tokens before the position, so
rejected drafts leave no trace in any penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What the distribution of one position depends on besides its logits."""

    params: SamplingParams
    prefix: Sequence[int]  # committed tokens of the row, prompt included
    drafted: Sequence[int]  # draft tokens between the prefix and this position
    num_prompt: int
    eos_token_ids: tuple[int, ...]

    @property
    def num_new(self) -> int:
        """Output tokens before this position."""
        return len(self.prefix) + len(self.drafted) - self.num_prompt

    @property
    def forbids_end(self) -> bool:
        """True before the row's ``min_new_tokens``."""
        return self.num_new < self.params.min_new_tokens


def is_plain(params: SamplingParams) -> bool:
    """True where the arg max of the raw logits is the arg max of the processed ones."""
    return params.repetition_penalty == 1.0 and params.min_new_tokens == 0


def adjust(logits: Tensor, positions: Sequence[Position]) -> Tensor:
    """Logits [M, V] after penalties and forbidden tokens; the input is not changed.

    The repetition penalty divides positive and multiplies negative logits of every token seen in
    prompt, output and earlier drafts (Keskar et al., arXiv 1909.05858, as transformers applies it).
    End tokens outside the vocabulary cannot be drawn and need no forbidding.
    """
    touched = [m for m, at in enumerate(positions) if at.params.repetition_penalty != 1.0 or at.forbids_end]
    if not touched:
        return logits
    logits = logits.clone()
    for m in touched:
        at = positions[m]
        row = logits[m]
        if at.params.repetition_penalty != 1.0:
            seen = torch.tensor(sorted({*at.prefix, *at.drafted}), device=logits.device)
            values = row[seen]
            penalty = at.params.repetition_penalty
            row[seen] = torch.where(values > 0, values / penalty, values * penalty)
        if at.forbids_end:
            row[[token for token in at.eos_token_ids if token < row.shape[0]]] = -torch.inf
    return logits


def distribution(logits: Tensor, positions: Sequence[Position]) -> Tensor:
    """Float32 probabilities [M, V] of adjusted logits at each position's temperature and filters.

    Greedy positions get a point mass on the first arg max.
    """
    temperature = logits.new_tensor([at.params.temperature for at in positions])
    # the floor keeps the quotient finite; far above it the law is a point mass already
    divisor = torch.where(temperature > 0, temperature.clamp(min=1e-30), 1.0)
    p = torch.softmax(logits / divisor[:, None], dim=-1)
    _filter_(p, positions)
    if any(at.params.temperature < _SMALLEST for at in positions):  # asked on the host: no wait for a device
        greedy = temperature == 0
        point = torch.zeros_like(p).scatter_(1, arg_max(logits)[:, None], 1.0)
        p = torch.where(greedy[:, None], point, p)
    return p


_SMALLEST = 2.0**-126
"""Normal float32 number; a temperature below it may be 0 where the logits are."""

_CANDIDATES = (128, 4096)
"""Largest entries tried for a cut before a whole row is sorted.

Sorting a vocabulary costs more than a small model's pass, and the kept set is mostly small.
"""


def _filter_(p: Tensor, positions: Sequence[Position]) -> None:
    """Keep the top-k and then the smallest set of mass top-p, and renormalise; in place.

    Among equal probabilities at the edge the lower token ids are kept.
    """
    vocab_size = p.shape[-1]
    kept = [min(at.params.top_k, vocab_size) or vocab_size for at in positions]
    filtered = [m for m, at in enumerate(positions) if kept[m] < vocab_size or at.params.top_p < 1]
    rows = torch.tensor(filtered, dtype=torch.int64, device=p.device)
    top_k = torch.tensor(kept, device=p.device)[rows]
    top_p = torch.tensor([at.params.top_p for at in positions], dtype=torch.float64, device=p.device)[rows]
    for width in (*(width for width in _CANDIDATES if width < vocab_size), vocab_size):
        if rows.numel() == 0:
            break
        largest, tokens = (p if rows.numel() == p.shape[0] else p[rows]).topk(width, dim=-1)
        mass = largest.cumsum(-1, dtype=torch.float64)
        top_k_mass = mass.gather(1, top_k.clamp(max=width)[:, None] - 1).squeeze(1)
        # without a top-k the whole is 1 by construction, and nothing need be sorted for it
        whole = torch.where(top_k < vocab_size, top_k_mass, 1.0)
        goal = torch.where(top_p < 1, top_p * whole, torch.inf)
        is_kept = (torch.arange(width, device=p.device) < top_k[:, None]) & (mass - largest < goal[:, None])
        is_found = (top_k <= width) | ((top_k == vocab_size) & (mass[:, -1] >= goal))
        # as indices: every use of the mask itself would wait for a device
        found, rest = is_found.nonzero().squeeze(1), (~is_found).nonzero().squeeze(1)
        _cut_(p, rows[found], tokens[found], mass[found], is_kept[found].sum(-1))
        rows, top_k, top_p = rows[rest], top_k[rest], top_p[rest]


def _cut_(p: Tensor, rows: Tensor, tokens: Tensor, mass: Tensor, num_kept: Tensor) -> None:
    """Keep the ``num_kept`` [S] largest entries of p's ``rows`` [S], and renormalise; in place.

    Args:
        p: float [R, V].
        rows: int [S].
        tokens: int [S, W], the rows' largest entries in descending order; equal ones in any order.
        mass: float64 [S, W], their running sums.
        num_kept: int [S].
    """
    largest = p[rows[:, None], tokens]
    last = num_kept[:, None] - 1
    edge, whole = largest.gather(1, last), mass.gather(1, last)
    # the order of equal entries is the sort's own affair: where the edge is among some, take them by id
    tied = ((largest >= edge).sum(-1) > num_kept) | (largest[:, -1:] >= edge).squeeze(1)
    tied = tied.nonzero().squeeze(1)
    candidates = p[rows[tied]]
    at_edge = candidates == edge[tied]
    num_at_edge = num_kept[tied] - (largest[tied] > edge[tied]).sum(-1)
    keep = (candidates > edge[tied]) | (at_edge & (at_edge.cumsum(-1) <= num_at_edge[:, None]))
    within = torch.arange(tokens.shape[1], device=p.device) <= last
    p[rows] = 0.0
    p[rows[:, None], tokens] = torch.where(within, largest / whole.to(p.dtype), 0.0)
    p[rows[tied]] = torch.where(keep, candidates / whole[tied].to(p.dtype), 0.0)


def arg_max(x: Tensor) -> Tensor:
    """Int [R]: the place of the first largest entry of each row of x [R, V].

    On a CPU by numpy, which is three to four times faster than torch at one row or a few.
    """
    if x.device.type == "cpu" and x.dtype == torch.float32:
        return torch.from_numpy(x.numpy().argmax(-1))
    return x.argmax(-1)


def inverse_cdf(p: Tensor, u: Tensor) -> Tensor:
    """Int [R]: the token whose cumulative interval holds ``u`` [R] in [0, 1); p [R, V] may be unnormalised.

    Sums run in float64; an entry of probability 0 is never returned.
    """
    cdf = p.double().cumsum(-1)
    # below the total also when rounded: u is at most 1 - 2**-53
    goal = u.double()[:, None] * cdf[:, -1:]
    return torch.searchsorted(cdf, goal, right=True).squeeze(1)


def race(p: Tensor, exponentials: Tensor) -> Tensor:
    """Int [R]: arg max of p / E, the Gumbel-max choice ``argmax log p + g`` with ``g = -log E``."""
    return arg_max(p / exponentials)
