"""What each contender loses, on requests that nothing was tuned on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.e09_batch_tables.tables import (
    DOCUMENTED,
    DOCUMENTED_TABLE,
    REPORTED,
    REPORTED_TABLE,
    SWITCH,
    TUNED,
    best_switch,
    table,
    tune,
)
from experiments.shipped.commands import paired, replay
from experiments.shipped.machines import costs, slug

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dspark.analysis.replay.headroom import Estimate
    from experiments.e09_batch_tables.tables import Ranges
    from experiments.reproduce import Context
    from experiments.shipped.recordings import Recordings


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """On one machine: speeds over the tuned table's and over those of the best fixed depth there."""

    batch_sizes: tuple[int, ...]
    tuned: Ranges
    switch: str  # which
    best_fixed: Mapping[int, str]
    over_tuned: Mapping[tuple[str, int], Estimate]  # by contender and batch size; of the tuned table 1
    over_best: Mapping[tuple[str, int], Estimate]

    def worst(self, contender: str) -> tuple[int, Estimate]:
        """The batch size at which a contender is furthest behind the tuned table, and its ratio there."""
        size = min(self.batch_sizes, key=lambda size: self.over_tuned[contender, size].value)
        return size, self.over_tuned[contender, size]


def halves(recorded: Recordings, folder: Path) -> tuple[Path, Path]:
    """Every second request to tune on, and the others to judge on; both hold every domain."""
    from dspark.analysis.replay.files import read_trace, write_trace

    trace = read_trace(recorded.trace)
    tuned_on, judged_on = (
        write_trace(trace.of(range(first, trace.num_requests, 2)), folder / f"{name}.parquet")
        for first, name in enumerate(("tuned_on", "judged_on"))
    )
    return tuned_on, judged_on


def losses(context: Context, recorded: Recordings, batch_sizes: Sequence[int]) -> dict[str, Losses]:
    """The losses by machine."""
    tuned_on, judged_on = halves(recorded, context.folder)
    return {
        machine: _of_machine(context, tuned_on, judged_on, batch_sizes, machine, cost)
        for machine, cost in costs(recorded).items()
    }


def _of_machine(
    context: Context,
    tuned_on: Path,
    judged_on: Path,
    batch_sizes: Sequence[int],
    machine: str,
    cost: Sequence[str],
) -> Losses:
    context.console.print(f"  {machine}", markup=False)
    tuned = tune(tuned_on, batch_sizes, cost, context.folder / f"tune-{slug(machine)}")
    switch = best_switch(batch_sizes, tuned.speeds).contender
    contenders = {
        TUNED: table(TUNED, tuned.ranges),
        SWITCH: switch,
        DOCUMENTED_TABLE: table(DOCUMENTED_TABLE, DOCUMENTED),
        REPORTED_TABLE: table(REPORTED_TABLE, REPORTED),
    }
    folder = context.folder / f"replay-{slug(machine)}"
    entries = list(dict.fromkeys(each.entry for each in contenders.values()))  # two may be one
    found = replay(judged_on, entries, batch_sizes, cost, folder)
    best_fixed = {batch["batch_size"]: batch["best_fixed"] for batch in found["batches"]}
    over_tuned, over_best = {}, {}
    for size in batch_sizes:
        speeds = paired(judged_on, folder, size)
        for name, each in contenders.items():
            over_tuned[name, size] = speeds.ratio(each.label, contenders[TUNED].label)
            over_best[name, size] = speeds.ratio(each.label, best_fixed[size])
    return Losses(
        batch_sizes=tuple(batch_sizes),
        tuned=tuned.ranges,
        switch=switch.name,
        best_fixed=best_fixed,
        over_tuned=over_tuned,
        over_best=over_best,
    )
