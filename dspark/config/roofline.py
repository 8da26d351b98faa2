"""The settings of `dspark roofline`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dspark.config.typed import construct

Dtype = Literal["float32", "bfloat16", "float8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeChoice:
    """A model whose sizes are known: by name, or by the config in a local folder."""

    name: str
    source: Path | None  # instead of the name


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineCommand:
    """All of the command's configuration.

    Raises:
        ValueError: a list is empty or repeats itself, or a number is out of range.
    """

    target: ShapeChoice
    draft: str | None
    hardware: str
    dtype: Dtype
    kv_dtype: Dtype | None
    context: int  # cached tokens of a row
    batch_sizes: tuple[int, ...]
    depths: tuple[int, ...]
    acceptance: float  # of a drafted token, given that those before it are accepted
    num_devices: int
    mfu: float
    mbu: float
    overhead_s: float
    plain: Mapping[str, Any] = field(repr=False)  # the same as plain values, for provenance

    def __post_init__(self) -> None:
        for name, least in (("batch_sizes", 1), ("depths", 0)):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} must list at least one, got an empty list")
            if len(set(values)) < len(values) or min(values) < least:
                raise ValueError(f"{name} must be different numbers >= {least}, got {list(values)}")
        if self.context < 0:
            raise ValueError(f"context must be >= 0, got {self.context}")
        if not 0 <= self.acceptance <= 1:
            raise ValueError(f"acceptance must be in [0, 1], got {self.acceptance}")


def parse_roofline(plain: Mapping[str, Any]) -> RooflineCommand:
    """The typed configuration of a composed and resolved one.

    Raises:
        ValueError: an unknown or missing key, a wrong type, a value out of range; one line each.
    """
    return construct(RooflineCommand, {**plain, "plain": dict(plain)}, "")
