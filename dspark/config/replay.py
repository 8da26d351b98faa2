"""The settings of `dspark replay`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark.config.schema import Component, component
from dspark.config.typed import construct


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """At which batch sizes policies run, and how sure their numbers shall be.

    Raises:
        ValueError: the list is empty or does not ascend, or a number is out of range.
    """

    batch_sizes: tuple[int, ...]  # rows that decode together, at most
    confidence: float  # share of the draws that an interval holds
    num_resamples: int  # draws of the trace's requests
    seed: int  # of the draws

    def __post_init__(self) -> None:
        sizes = self.batch_sizes
        if not sizes or sizes[0] < 1 or any(a >= b for a, b in itertools.pairwise(sizes)):
            raise ValueError(f"batch_sizes must ascend, from 1 or more, got {list(sizes)}")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence must be in [0.5, 1), got {self.confidence}")
        if self.num_resamples < 100:
            raise ValueError(f"num_resamples must be >= 100, got {self.num_resamples}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCommand:
    """All of the command's configuration."""

    trace: Path  # of `dspark record`
    replay: ReplaySettings
    policies: tuple[str, ...]  # "NAME [VALUE] [key=value ...]"
    cost: Component
    resume: bool
    plain: Mapping[str, Any] = field(repr=False)  # the same as plain values


def parse_replay(plain: Mapping[str, Any]) -> ReplayCommand:
    """The typed configuration of a composed and resolved one.

    Raises:
        ValueError: an unknown or missing key, a wrong type, a value out of range; one line each.
    """
    cost = component(plain.get("cost"), "cost")
    if cost.target is None:
        raise ValueError(
            "`replay` needs a cost model, because a trace holds no seconds: measure this machine with "
            "`dspark profile` and set cost=profile, or choose cost=published or cost=roofline"
        )
    return construct(ReplayCommand, {**plain, "cost": cost, "plain": dict(plain)}, "")
