"""The settings of `dspark profile`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConfig:
    """Which steps are measured, and how often.

    Raises:
        ValueError: a list is empty, does not ascend or starts too low, or a number is out of range.
    """

    tokens: tuple[int, ...]  # in the pass, over all rows; sizes below the number of rows are left out
    rows: tuple[int, ...]  # decode rows
    contexts: tuple[int, ...]  # cached tokens a row
    max_cached_tokens: int  # over all rows; larger passes are left out, and this is told
    depths: tuple[int, ...]  # of the drafter; depth 0 is always measured
    draft_rows: tuple[int, ...]  # rows that draft together
    draft_prompt_tokens: int  # prompts of the workload are cut to this
    repeats: int  # of every size
    captured_tokens: tuple[int, ...] | None  # pass sizes with a captured graph; None: the target's own
    seed: int  # of the order
    path: Path | None  # where a copy of profile.json goes; None: nowhere

    def __post_init__(self) -> None:
        least = {"tokens": 1, "rows": 1, "contexts": 1, "depths": 1, "draft_rows": 1, "captured_tokens": 1}
        for name, lowest in least.items():
            sizes = getattr(self, name) or ()
            if any(size < lowest for size in sizes) or any(b <= a for a, b in pairwise(sizes)):
                raise ValueError(f"{name} must ascend from {lowest} or more, got {list(sizes)}")
        for name in ("rows", "contexts", "draft_rows"):
            if not getattr(self, name):
                raise ValueError(f"{name} must name at least one size, got an empty list")
        if len(self.tokens) < 3:
            raise ValueError(f"tokens must name 3 or more sizes, got {list(self.tokens)}")
        for name in ("max_cached_tokens", "draft_prompt_tokens", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")
        if self.rows[0] > self.tokens[-3]:
            raise ValueError(
                f"3 or more tokens must be at least the fewest rows, {self.rows[0]}, got {list(self.tokens)}"
            )
        if self.rows[0] * self.contexts[0] > self.max_cached_tokens:
            raise ValueError(
                f"max_cached_tokens must leave room for {self.rows[0]} rows of {self.contexts[0]} tokens, "
                f"got {self.max_cached_tokens}"
            )
