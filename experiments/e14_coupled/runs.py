"""Sampled runs of two depths under two rules, and what is left of the noise between the depths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dspark.metrics.trace import read_jsonl
from experiments.e14_coupled.cells import DEPTHS, RULES, TEMPERATURES
from experiments.shipped.commands import by_cell, compare
from experiments.shipped.models import models

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from experiments.reproduce import Context

BATCH_SIZE, QUICK_BATCH_SIZE = 16, 2
SETTINGS = ("workload.num_requests=36", "sampling.max_new_tokens=48")
QUICK_SETTINGS = ("workload.num_requests=4", "sampling.max_new_tokens=24")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Both depths under one rule at one temperature; requests in one order."""

    lengths: Mapping[int, float]  # acceptance length by depth
    first: float  # share of first drafts accepted, at the larger depth
    decode_tokens_per_s: Mapping[int, float | None]
    num_requests: int
    num_differing: int  # requests whose text is not the same at both depths
    per_request: Mapping[
        int, np.ndarray
    ]  # float64 [R], tokens a round by depth; requests with rounds at both

    @property
    def standard_error(self) -> float:
        """Of the mean difference between the depths, of tokens a round, request by request."""
        difference = self.per_request[DEPTHS[1]] - self.per_request[DEPTHS[0]]
        return float(difference.std(ddof=1) / np.sqrt(len(difference)))

    @property
    def unpaired_standard_error(self) -> float:
        """The same if nobody knew which request is which."""
        variances = [each.var(ddof=1) / len(each) for each in self.per_request.values()]
        return float(np.sqrt(sum(variances)))


def sampled(context: Context) -> dict[tuple[str, float], Sampled]:
    """The runs by rule and temperature; what has ended is not run again."""
    found = {}
    size = QUICK_BATCH_SIZE if context.quick else BATCH_SIZE
    for temperature in TEMPERATURES:
        for rule in RULES:
            context.console.print(f"  {rule}, temperature {temperature:g}", markup=False)
            settings = [*models(context), *(QUICK_SETTINGS if context.quick else SETTINGS)]
            settings += [f"verification={rule}", f"sampling.temperature={temperature}"]
            folder = context.folder / f"{rule}-{temperature:g}"
            policies = [f"fixed {depth}" for depth in DEPTHS]
            summary = compare([*settings, "compare.baseline=null"], policies, [size], folder)
            rows = {depth: by_cell(summary)[f"fixed {depth}", size] for depth in DEPTHS}
            found[rule, temperature] = Sampled(
                lengths={depth: row["acceptance_length"] for depth, row in rows.items()},
                first=rows[DEPTHS[1]]["survival_at"][0],
                decode_tokens_per_s={depth: row["decode_tokens_per_s"] for depth, row in rows.items()},
                num_requests=rows[DEPTHS[0]]["num_requests"],
                num_differing=num_differing(folder, size),
                per_request=per_request(folder, size),
            )
    return found


def num_differing(folder: Path, batch_size: int) -> int:
    """Requests whose tokens are not the same at both depths."""
    texts = {depth: {} for depth in DEPTHS}
    for item in read_jsonl(folder / "outputs.jsonl"):
        texts[_depth(item["cell"], batch_size)][item["request_id"]] = item["token_ids"]
    shallow, deep = (texts[depth] for depth in DEPTHS)
    assert shallow.keys() == deep.keys(), "the same requests"
    return sum(shallow[name] != deep[name] for name in shallow)


def per_request(folder: Path, batch_size: int) -> dict[int, np.ndarray]:
    """Tokens a round of each request by depth, in order of their names; without those of one token."""
    from dspark.analysis.frames import rows_frame

    sums = rows_frame(folder).groupby(["cell", "request_id"])["emitted"].agg(["sum", "count"])
    found: dict[int, dict[str, float]] = {depth: {} for depth in DEPTHS}
    for (cell, name), (tokens, rounds) in zip(sums.index, sums.to_numpy().tolist(), strict=True):
        found[_depth(cell, batch_size)][name] = tokens / rounds
    shallow, deep = (found[depth] for depth in DEPTHS)
    both = sorted(shallow.keys() & deep.keys())
    return {depth: np.array([found[depth][name] for name in both]) for depth in DEPTHS}


def _depth(cell: str, batch_size: int) -> int:
    """The depth in a cell's name."""
    return next(depth for depth in DEPTHS if cell == f"fixed {depth}/batch {batch_size}/repeat 0")
