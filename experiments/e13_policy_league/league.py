"""The league's results: a row a machine, domain, batch size and policy, and what follows from them."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING, Any

from experiments.e13_policy_league.entries import ENTRIES, QUICK, option_of
from experiments.shipped.commands import replay
from experiments.shipped.machines import costs, slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from experiments.reproduce import Context
    from experiments.shipped.recordings import Recordings


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """One policy at one batch size; seconds are modelled, intervals hold 95 % of paired draws of requests."""

    machine: str
    domain: str
    batch_size: int
    policy: str  # option
    label: str  # as commands call it
    best_fixed: str
    ratio: float  # tokens/s over those of the best fixed depth
    ratio_low: float
    ratio_high: float
    room: float  # what hindsight gains over the best fixed depth, as a share of its speed
    headroom: float | None  # share of the room; None: there is no room to speak of
    headroom_low: float | None
    headroom_high: float | None


def play(context: Context, recorded: Recordings, batch_sizes: Sequence[int]) -> list[Placing]:
    """Replays everybody on every domain, machine and batch size; what has ended is not run again."""
    entries = [ENTRIES[name] for name in (QUICK if context.quick else ENTRIES)]
    domains = dict([*recorded.domains.items()][: 1 if context.quick else None])
    placings: list[Placing] = []
    for machine, cost in costs(recorded).items():
        for domain, trace in domains.items():
            context.console.print(f"  {machine}, {domain}", markup=False)
            folder = context.folder / f"{slug(machine)}-{domain}"
            placings += placings_of(replay(trace, entries, batch_sizes, cost, folder), machine, domain)
    return placings


def placings_of(found: Mapping[str, Any], machine: str, domain: str) -> list[Placing]:
    """The rows of a ``replay.json``, without fixed depths and hindsight."""
    from dspark.analysis.replay.rows import ORACLE, is_fixed

    batches = {batch["batch_size"]: batch for batch in found["batches"]}
    placings = []
    for row in found["rows"]:
        if is_fixed(row) or row["policy"] == ORACLE:
            continue
        batch = batches[row["batch_size"]]
        ratio, share = row["modelled_ratio_to_best_fixed_interval"], row["modelled_headroom_interval"]
        placings.append(
            Placing(
                machine=machine,
                domain=domain,
                batch_size=row["batch_size"],
                policy=option_of(row["policy"]),
                label=row["policy"],
                best_fixed=batch["best_fixed"],
                ratio=row["modelled_ratio_to_best_fixed"],
                ratio_low=ratio[0],
                ratio_high=ratio[1],
                room=batch["modelled_room"],
                headroom=row["modelled_headroom"],
                headroom_low=None if share is None else share[0],
                headroom_high=None if share is None else share[1],
            )
        )
    return placings


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A policy on one machine, over all domains and batch sizes."""

    policy: str
    label: str
    mean_ratio: float  # geometric
    worst: Placing
    best: Placing
    mean_headroom: float | None  # over the places with room; None: there are none


def standings(placings: Iterable[Placing], machine: str) -> list[Standing]:
    """The table of a machine, the best mean first."""
    by_policy: dict[str, list[Placing]] = {}
    for placing in placings:
        if placing.machine == machine:
            by_policy.setdefault(placing.policy, []).append(placing)
    found = []
    for policy, own in by_policy.items():
        shares = [each.headroom for each in own if each.headroom is not None]
        found.append(
            Standing(
                policy=policy,
                label=own[0].label,
                mean_ratio=exp(fmean(log(each.ratio) for each in own)),
                worst=min(own, key=lambda each: each.ratio),
                best=max(own, key=lambda each: each.ratio),
                mean_headroom=fmean(shares) if shares else None,
            )
        )
    return sorted(found, key=lambda each: each.mean_ratio, reverse=True)


def over_domains(placings: Iterable[Placing], machine: str) -> dict[tuple[str, int], float]:
    """Geometric mean over domains of the ratio to the best fixed depth, by policy and batch size."""
    logs: dict[tuple[str, int], list[float]] = {}
    for each in placings:
        if each.machine == machine:
            logs.setdefault((each.policy, each.batch_size), []).append(log(each.ratio))
    return {place: exp(fmean(values)) for place, values in logs.items()}


def write_csv(placings: Iterable[Placing], path: Path) -> None:
    """Every row of the league; empty where there is no number."""
    names = [field.name for field in fields(Placing)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([getattr(each, name) for name in names] for each in placings)
