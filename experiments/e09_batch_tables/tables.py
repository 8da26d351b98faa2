"""The contenders: tables by batch size as engines have them, a switch, and the tuned table."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TUNED, SWITCH = "tuned table", "best switch"
DOCUMENTED_TABLE, REPORTED_TABLE = "vLLM's documented table", "a reported table"
CONTENDERS = (TUNED, SWITCH, DOCUMENTED_TABLE, REPORTED_TABLE)

Ranges = list[list[int]]
"""``[low, high, depth]`` each, as in vLLM."""

DOCUMENTED: Ranges = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]
"""The example of vLLM's page on ``num_speculative_tokens_per_batch_size`` (v0.25)."""
REPORTED: Ranges = [[1, 4, 2], [5, 512, 0]]
"""A user's, in vLLM's issue 49548."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy by the name that it has here, as it is typed, and by the label that commands give it."""

    name: str
    entry: str  # of `policies=[...]`
    label: str  # in tables and files


def table(name: str, ranges: Ranges) -> Contender:
    """A table of ranges."""
    told = str(ranges).replace(" ", "")
    return Contender(name=name, entry=f"batch_table {told}", label=f"batch_table {told}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """vLLM's former ``disable_by_batch_size``: ``depth`` below a batch size, and none from it on."""

    depth: int
    threshold: int

    @property
    def contender(self) -> Contender:
        """As a policy."""
        told = f"disable_by_batch_size={self.threshold} depth={self.depth}"
        entry, label = f"batch_table ranges=null {told}", f"batch_table None {told}"
        return Contender(name=f"switch: {self.depth} below {self.threshold}", entry=entry, label=label)


def best_switch(batch_sizes: Sequence[int], speeds: Sequence[Sequence[float]]) -> Switch:
    """The switch of the largest product of speeds over all batch sizes; of equals the shallowest.

    Args:
        batch_sizes: B of them, ascending from 1.
        speeds: tokens/s [B][K + 1] of every fixed depth.
    """
    thresholds = [*batch_sizes[1:], batch_sizes[-1] + 1]
    choices = [
        Switch(depth=depth, threshold=threshold)
        for depth in range(1, len(speeds[0]))
        for threshold in thresholds
    ]

    def log_product(switch: Switch) -> float:
        return sum(
            math.log(each[switch.depth if size < switch.threshold else 0])
            for size, each in zip(batch_sizes, speeds, strict=True)
        )

    return max(choices, key=log_product)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What `dspark tune` left."""

    ranges: Ranges
    speeds: list[list[float]]  # modelled tokens/s by batch size and fixed depth


def tune(trace: Path, batch_sizes: Sequence[int], cost: Sequence[str], folder: Path) -> Tuned:
    """The tuned table of a trace, by `dspark tune`; what has ended there is not run again."""
    from experiments.reproduce.commands import dspark

    if not (folder / "tuning.json").is_file():
        arguments = [
            *("tune", f"trace={trace}", *cost, f"tune.batch_sizes={list(batch_sizes)}"),
            f"out={folder / 'schedule.json'}",
        ]
        dspark(arguments, folder)
    found = json.loads((folder / "tuning.json").read_text(encoding="utf-8"))
    return Tuned(ranges=found["schedule"]["ranges"], speeds=[size["speeds"] for size in found["sizes"]])
