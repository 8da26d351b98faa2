"""The exact law of outputs on toy worlds, under both rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.analysis.audit import EXACT_RULES
from dspark.analysis.audit.cases import SHAPES, appendix_a, random_world
from dspark.analysis.audit.output_law import output_law
from dspark.policies.fixed import Fixed

if TYPE_CHECKING:
    from fractions import Fraction

ALONE = tuple(
    shape
    for shape in SHAPES
    if shape.num_requests == 1 and shape.vocab_size <= 3 and not shape.num_bystanders
)
"""Sizes of random worlds that are enumerated in moments."""


def largest_bias(rule: str, num_seeds: int) -> tuple[Fraction, int]:
    """The largest distance of an output law from the target's, and of how many worlds.

    Total variation over whole outputs, in fractions; drafts of fixed depths 1 to 3.
    """
    worlds = [appendix_a(), *(random_world(shape, seed) for shape in ALONE for seed in range(num_seeds))]
    biases = [
        output_law(Fixed(depth=depth), world, EXACT_RULES[rule]).bias
        for world in worlds
        for depth in (1, 2, 3)
    ]
    return max(biases), len(worlds)


def least_acceptance(rejection: float) -> float:
    """What coupling without communication keeps at the least of an acceptance that rejection has.

    A position with total variation t is accepted with 1 - t under rejection, and with (1 - t)/(1 + t) or
    more under coupling (Daliri, Musco and Suresh, arXiv 2408.07978). That is convex in t, so it holds for
    means, too.
    """
    distance = 1 - rejection
    return (1 - distance) / (1 + distance)
