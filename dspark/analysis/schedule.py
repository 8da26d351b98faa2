"""A schedule: the depth of each batch size, which is what serving engines are configured with."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
"""The version of a schedule's file."""

Range = tuple[int, int, int]
"""Lowest batch size, highest batch size, depth; both ends included."""

_ORIGIN = ("target", "drafter", "cost", "command")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Depth by batch size, and what it was tuned for.

    The ranges ascend from batch size 1 and leave no gap. What happens past the last is not said
    here, since engines disagree: vLLM and SGLang go on with the last depth, TensorRT-LLM stops
    drafting.

    Raises:
        ValueError: the ranges break a rule.
    """

    depths: tuple[Range, ...]
    target: str | None = None  # None: not known, as for the other three
    drafter: str | None = None
    cost: str | None = None  # the cost model, or the machine it was measured on
    command: str | None = None  # that made it

    def __post_init__(self) -> None:
        if not self.depths:
            raise ValueError("a schedule needs a range for batch size 1, got no ranges: add [1, 1, depth]")
        last: Range | None = None
        for entry in self.depths:
            _check(entry, last)
            last = entry

    @property
    def max_depth(self) -> int:
        """The largest depth."""
        return max(depth for _, _, depth in self.depths)

    def merged(self) -> Schedule:
        """The same depths in as few ranges as possible: neighbours of one depth are one range."""
        joined: list[Range] = []
        for low, high, depth in self.depths:
            if joined and joined[-1][2] == depth:
                joined[-1] = (joined[-1][0], high, depth)
            else:
                joined.append((low, high, depth))
        return replace(self, depths=tuple(joined))

    def to_json(self) -> dict[str, Any]:
        """The schedule as plain values, for a file."""
        origin = {name: getattr(self, name) for name in _ORIGIN}
        return {"schema": SCHEMA, "ranges": [list(entry) for entry in self.depths], **origin}

    @classmethod
    def from_json(cls, item: object) -> Schedule:
        """The schedule that ``to_json`` wrote.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(item, dict) or item.get("schema") != SCHEMA:
            got = item.get("schema") if isinstance(item, dict) else item
            raise ValueError(f"a schedule is an object of schema {SCHEMA}, got {got!r}")
        known = ("schema", "ranges", *_ORIGIN)
        if item.keys() != set(known):
            raise ValueError(f"a schedule has the fields {', '.join(known)}, got {', '.join(item)}")
        for name in _ORIGIN:
            if not isinstance(item[name], str | None):
                raise ValueError(f"{name} must be a text or null, got {item[name]!r}")
        ranges = item["ranges"]
        if not isinstance(ranges, list) or not all(isinstance(entry, list) for entry in ranges):
            raise ValueError(f"ranges must be a list of [lowest, highest, depth], got {ranges!r}")
        return cls(depths=tuple(map(tuple, ranges)), **{name: item[name] for name in _ORIGIN})


def load_schedule(path: Path) -> Schedule:
    """The schedule in a file.

    Raises:
        ValueError: the file cannot be read, or holds something else; one line, with the path.
    """
    try:
        return Schedule.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"cannot read the schedule {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"the schedule {path} is not JSON: {error}") from error
    except ValueError as error:
        raise ValueError(f"the schedule {path}: {error}") from error


def _check(entry: Range, last: Range | None) -> None:
    """Raises unless ``entry`` is a range that goes on where ``last`` ends."""
    shown = list(entry)
    if len(entry) != 3 or not all(type(number) is int for number in entry):
        raise ValueError(f"a range is three whole numbers [lowest, highest, depth], got {shown}")
    low, high, depth = entry
    if depth < 0:
        raise ValueError(
            f"a depth is a number of drafted tokens, >= 0, got {depth} in {shown}: 0 drafts none"
        )
    if low > high:
        raise ValueError(f"a range must not end before it starts, got {shown}: swap its batch sizes")
    if last is None:
        if low != 1:
            raise ValueError(
                f"the first range must start at 1, because every batch size needs a depth, got {shown}: "
                "start it at 1"
            )
        return
    start = last[1] + 1
    if low < start:
        raise ValueError(
            f"ranges must ascend and not overlap, got {shown} after {list(last)}: start at {start}"
        )
    if low > start:
        raise ValueError(
            f"ranges must leave no gap, because every batch size needs a depth, got {shown} after "
            f"{list(last)}: start at {start}"
        )
