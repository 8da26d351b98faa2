"""How a token is drawn from a distribution: which random number, and by which rule.

Every number is named by (request seed, position of the token it decides, purpose, lane), and the
lane of draft, accept and final numbers is the round: the row's committed length when it began.

Why a round needs numbers of its own: a position that was drafted and not emitted is drafted anew in
the next round. Token-wise rejection never looked at what followed its first rejection, so it could
use the old numbers again. Block verification did look: where it accepts nothing it has learned
that the *last* position's token and uniform were unlucky. Used again, both would be
biased towards what the target does not want.

Coupled draws have no lane on purpose: the noise of a position belongs to the position, whoever
draws there and however often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from dspark.sampling import inverse_cdf, race
from dspark.seeding import Purpose, exponential_race, uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.verification.base import SampledRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The random streams of R rows in one round."""

    seeds: Tensor  # [R]
    committed: Tensor  # [R] committed tokens: the position of the round's first token

    @classmethod
    def of(cls, rows: Sequence[SampledRow], device: torch.device) -> Streams:
        """The streams of these rows' next tokens."""
        return cls(
            seeds=torch.tensor([row.seed for row in rows], dtype=torch.int64, device=device),
            committed=torch.tensor([len(row.tokens) for row in rows], dtype=torch.int64, device=device),
        )

    @property
    def lanes(self) -> Tensor:
        """Int [R]: the round; strictly larger in every later one, since a round emits a token."""
        return self.committed

    def uniforms(self, purpose: Purpose, offsets: Tensor) -> Tensor:
        """Float64 [R] or [R, K]: numbers that decide the tokens ``offsets`` past the committed ones."""
        shape = (-1,) + (1,) * (offsets.dim() - 1)
        lanes = self.lanes.view(shape)
        return uniform(self.seeds.view(shape), self.committed.view(shape) + offsets, purpose, lanes)


class Draw(Protocol):
    """Draws one token a row."""

    def __call__(self, p: Tensor, streams: Streams, offsets: Tensor) -> Tensor:
        """Int [R]: tokens drawn from p [R, V] for the positions ``offsets`` [R] past the committed."""
        ...


def draw_draft(p: Tensor, streams: Streams, offsets: Tensor) -> Tensor:
    """Int [R]: a drafter's own tokens, independent of every decision about them."""
    return inverse_cdf(p, streams.uniforms(Purpose.DRAFT, offsets))


def draw_final(p: Tensor, streams: Streams, offsets: Tensor) -> Tensor:
    """Int [R]: recovered and bonus tokens, and those of plain decoding."""
    return inverse_cdf(p, streams.uniforms(Purpose.FINAL, offsets))


def draw_coupled(p: Tensor, streams: Streams, offsets: Tensor) -> Tensor:
    """Int [R]: winners of the position's own race, the same noise for drafter and target.

    Daliri, Musco and Suresh, arXiv 2408.07978: arg max of log p + g with shared Gumbel noise g.
    """
    noise = exponential_race(streams.seeds, streams.committed + offsets, Purpose.TARGET, p.shape[-1])
    return race(p, noise)
