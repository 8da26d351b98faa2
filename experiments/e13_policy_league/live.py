"""Spot checks: the machine's best policy beside the best fixed depths, live."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.shipped.commands import by_cell, compare
from experiments.shipped.models import models

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from experiments.e13_policy_league.league import Placing
    from experiments.reproduce import Context
    from experiments.shipped.recordings import Recordings

PLAIN = "fixed 0"
BATCH_SIZES, QUICK_BATCH_SIZES = (1, 4, 16), (1, 2)
SETTINGS = ("workload.num_requests=16", "sampling.max_new_tokens=32")
QUICK_SETTINGS = ("workload.num_requests=2", "sampling.max_new_tokens=12")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Live decode tokens/s at a batch size."""

    policy: str
    tokens_per_s: float
    best_fixed: str  # of those that were run
    ratio: float  # to it


def spots(
    context: Context, recorded: Recordings, placings: Iterable[Placing], champion: str
) -> dict[int, Spot]:
    """The champion beside plain decoding and the fixed depths that replay likes best, by batch size.

    Cells that are too short to have a speed are left out.

    Args:
        context: of the run.
        recorded: whose profile policies decide by.
        placings: of this machine.
        champion: label of a policy.
    """
    sizes = QUICK_BATCH_SIZES if context.quick else BATCH_SIZES
    fixed = fixed_rivals(placings, sizes)
    settings = [*models(context), *(QUICK_SETTINGS if context.quick else SETTINGS)]
    settings += ["cost=profile", f"cost.path={recorded.profile}"]
    summary = compare(settings, [*fixed, champion], sizes, context.folder / "live")
    rows = by_cell(summary)
    speeds = {cell: row["decode_tokens_per_s"] for cell, row in rows.items()}
    return spots_of({cell: speed for cell, speed in speeds.items() if speed}, champion)


def fixed_rivals(placings: Iterable[Placing], batch_sizes: Iterable[int]) -> list[str]:
    """Plain decoding, and at each batch size the fixed depth that is best in most domains."""
    wanted = set(batch_sizes)
    votes: dict[int, Counter[str]] = {}
    for each in placings:
        if each.batch_size in wanted:
            votes.setdefault(each.batch_size, Counter())[each.best_fixed] += 1
    favourites = [votes[size].most_common(1)[0][0] for size in sorted(votes)]
    return list(dict.fromkeys([PLAIN, *favourites]))


def spots_of(speeds: Mapping[tuple[str, int], float], champion: str) -> dict[int, Spot]:
    """The spots by batch size.

    Args:
        speeds: tokens/s by policy and batch size.
        champion: label of a policy.
    """
    found = {}
    for size in sorted({size for name, size in speeds if name == champion}):
        fixed = {name: speed for (name, at), speed in speeds.items() if at == size and name != champion}
        if fixed:
            best = max(fixed, key=fixed.__getitem__)
            own = speeds[champion, size]
            found[size] = Spot(policy=champion, tokens_per_s=own, best_fixed=best, ratio=own / fixed[best])
    return found
