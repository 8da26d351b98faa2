"""The settings of `dspark record`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """How deep the drafts of a trace are.

    Raises:
        ValueError: a number is out of range.
    """

    depth: int  # of the draft at every position

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError(f"depth must be >= 1, got {self.depth}")
