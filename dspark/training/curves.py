"""From sums to the numbers of a curve: each a total over a total."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import torch

from dspark.training.losses import TERMS, LossSums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dspark.training.settings import LossWeights


def add(sums: Iterable[LossSums]) -> LossSums:
    """The sums of several batches, without gradients."""
    each = list(sums)
    stacked = {item.name: [getattr(one, item.name).detach() for one in each] for item in fields(LossSums)}
    return LossSums(**{name: torch.stack(values).sum(0) for name, values in stacked.items()})


def numbers(sums: LossSums, weights: LossWeights) -> dict[str, float]:
    """The curve's numbers at one point.

    ``loss`` and its terms; ``overlap@k``: mean chance that draft k is accepted at temperature 1, whatever
    came before; ``accept@k``: that all drafts up to k are; ``match@k`` and ``run@k``: the same of greedy
    guesses; ``expected_tau``: 1 + the sum of accept@k, the acceptance length at temperature 1 from a
    random place of an answer that goes on; ``confidence_error``: mean |confidence - overlap|. k from 1.
    """
    weight = max(float(sums.weight), 1e-12)
    found: dict[str, float] = {}
    terms = {name: float(value) / weight for name, value in zip(TERMS, sums.terms, strict=True)}
    found["loss"] = sum(getattr(weights, name) * value for name, value in terms.items())
    found.update({name: value for name, value in terms.items() if name != "confidence" or weights.confidence})
    count = [max(float(number), 1.0) for number in sums.count]
    shares = {
        name: [float(value) / number for value, number in zip(getattr(sums, part), count, strict=True)]
        for name, part in (("overlap", "overlap"), ("accept", "survival"), ("match", "match"), ("run", "run"))
    }
    found["expected_tau"] = 1 + sum(shares["accept"])
    if weights.confidence:
        found["confidence_error"] = float(sums.error) / sum(count)
    for name, values in shares.items():
        found.update({f"{name}@{k}": value for k, value in enumerate(values, start=1)})
    return found
