"""Random drafts with their survivals, and curves of cost of every shape."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

import torch

from dspark.types import Draft, Signal


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One decision to make."""

    confidence: list[list[float]]  # [B][K]
    lengths: list[int]  # [B]
    seconds: list[float]  # by the tokens of the pass

    @property
    def survival(self) -> list[list[float]]:
        """Products over the prefix, [B][K]."""
        return [list(accumulate(row, mul)) for row in self.confidence]

    @property
    def draft(self) -> Draft:
        """What a drafter with a confidence head would hand over."""
        lengths = torch.tensor(self.lengths)
        confidence = torch.tensor(self.confidence, dtype=torch.float64)
        drafted = torch.arange(confidence.shape[1]) < lengths[:, None]
        return Draft(
            tokens=torch.zeros_like(confidence, dtype=torch.int64).where(drafted, -1),
            lengths=lengths,
            q=None,
            signals={Signal.CONFIDENCE: confidence.where(drafted, torch.nan)},
        )


def random_batches(seed: int, count: int, *, max_rows: int = 6, max_depth: int = 5) -> Iterator[Batch]:
    """Batches, half of them on a coarse grid of probabilities and seconds so that everything ties."""
    rng = random.Random(seed)
    for _ in range(count):
        num_rows, depth = rng.randint(1, max_rows), rng.randint(1, max_depth)
        coarse = rng.random() < 0.5
        draw = (lambda: rng.choice([0.0, 0.25, 0.5, 0.75, 1.0])) if coarse else rng.random
        yield Batch(
            confidence=[[draw() for _ in range(depth)] for _ in range(num_rows)],
            lengths=[rng.choice([depth, rng.randint(0, depth)]) for _ in range(num_rows)],
            seconds=_curve(rng, num_rows * (depth + 1) + 1, coarse=coarse),
        )


def _curve(rng: random.Random, size: int, *, coarse: bool) -> list[float]:
    """Seconds that rise evenly, in steps, not at all, or up and down at random."""
    shape = rng.choice(["line", "stairs", "flat", "jagged", "jagged"])
    slope = rng.choice([0.0625, 0.25, 1.0]) if coarse else rng.uniform(0.02, 1.0)
    if shape == "line":
        return [1 + slope * n for n in range(size)]
    if shape == "stairs":
        width = rng.randint(2, 5)
        return [1 + slope * width * (n // width) for n in range(size)]
    if shape == "flat":
        return [1.0] * size
    return [rng.choice([1.0, 1.5, 2.0, 4.0]) if coarse else rng.uniform(0.5, 4.0) for _ in range(size)]
