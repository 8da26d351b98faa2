"""The same question to this machine: live runs at batch sizes that grow, with steps as they were timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.shipped.commands import by_cell, compare
from experiments.shipped.models import models
from experiments.shipped.recordings import profile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.reproduce import Context

PLAIN, SHALLOW, DEEP, DYNAMIC = "fixed 0", "fixed 1", "fixed 5", "prefix_scheduler"
POLICIES = (PLAIN, SHALLOW, DEEP, DYNAMIC)
BATCH_SIZES, QUICK_BATCH_SIZES = (1, 2, 4, 8, 16), (1, 2)
SETTINGS = ("workload.num_requests=16", "sampling.max_new_tokens=24")
QUICK_SETTINGS = ("workload.num_requests=2", "sampling.max_new_tokens=12")


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What was measured, by policy and batch size."""

    batch_sizes: tuple[int, ...]
    tokens_per_s: Mapping[tuple[str, int], float]  # decoding, by the wall; cells too short for it are absent
    verified: Mapping[tuple[str, int], float]  # drafted tokens verified a row-step
    num_differing: int  # cells with other tokens than plain decoding


def measure(context: Context) -> Live:
    """Runs the comparison, or reads what it left.

    Raises:
        RuntimeError: a command did not end well.
    """
    sizes = QUICK_BATCH_SIZES if context.quick else BATCH_SIZES
    settings = [*models(context), *(QUICK_SETTINGS if context.quick else SETTINGS)]
    settings += ["cost=profile", f"cost.path={profile(context)}"]
    summary = compare(settings, POLICIES, sizes, context.folder / "live")
    speeds = {cell: row["decode_tokens_per_s"] for cell, row in by_cell(summary).items()}
    return Live(
        batch_sizes=sizes,
        tokens_per_s={cell: speed for cell, speed in speeds.items() if speed is not None},
        verified=_verified(context.folder / "live"),
        num_differing=len({each["cell"] for each in summary["tokens"]["divergences"]}),
    )


def _verified(folder: Path) -> dict[tuple[str, int], float]:
    """Drafted tokens verified a row-step, by policy and batch size."""
    from dspark.analysis.frames import steps_frame

    sums = steps_frame(folder).groupby("cell")[["verified_tokens", "num_decode_rows"]].sum()
    found = {}
    for cell, (verified, rows) in zip(sums.index, sums.to_numpy().tolist(), strict=True):
        policy, batch, _ = str(cell).rsplit("/", 2)
        found[policy, int(batch.removeprefix("batch "))] = verified / rows
    return found
