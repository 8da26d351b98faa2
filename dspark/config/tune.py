"""The settings of `dspark tune`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark.analysis.tuning import TuneSettings
from dspark.config.schema import Component, component
from dspark.config.typed import construct


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneCommand:
    """All of the command's configuration."""

    trace: Path  # of `dspark record`
    tune: TuneSettings
    policies: tuple[str, ...]  # to compare with, "NAME [VALUE] [key=value ...]"
    out: Path  # the schedule's file
    cost: Component
    plain: Mapping[str, Any] = field(repr=False)  # the same as plain values


def parse_tune(plain: Mapping[str, Any]) -> TuneCommand:
    """The typed configuration of a composed and resolved one.

    Raises:
        ValueError: an unknown or missing key, a wrong type, a value out of range; one line each.
    """
    cost = component(plain.get("cost"), "cost")
    if cost.target is None:
        raise ValueError(
            "`tune` needs a cost model: measure this machine with `dspark profile` and set cost=profile, or "
            "choose cost=published or cost=roofline"
        )
    return construct(TuneCommand, {**plain, "cost": cost, "plain": dict(plain)}, "")
