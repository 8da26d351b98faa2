"""From this machine to vLLM's configuration by `dspark` commands, and what replay says of every side."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark.analysis.replay.files import read_trace
from dspark.analysis.replay.run import replay
from dspark.analysis.schedule import load_schedule
from dspark.cost.profile_file import profile_cost
from dspark.policies.batch_table import BatchTable
from dspark.policies.fixed import Fixed
from experiments.commands import kept

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.analysis.schedule import Schedule
    from dspark.cost.base import CostModel
    from dspark.policies.base import Policy
    from experiments.peers.vllm_schedule.options import Options

NO_CHUNKS = 1 << 30
"""Prompt tokens a pass: all prompts in the first one, as with vLLM's ``max_num_batched_tokens`` here."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was measured here, tuned and exported."""

    trace: AcceptanceTrace
    cost: CostModel
    schedule: Schedule
    config: dict[str, Any] | None  # what `dspark export` wrote; None: no depth of the schedule is above 0

    def modelled_decode_tokens_per_s(self, policy: Policy, batch_size: int) -> float | None:
        """What replay says of the first ``batch_size`` requests, which all start together."""
        done = replay(
            self.trace.of(range(batch_size)),
            policy,
            batch_size=batch_size,
            cost=self.cost,
            prefill_chunk=NO_CHUNKS,
        )
        return done.decode_tokens_per_s()

    def tuned(self) -> BatchTable:
        """The schedule as a policy."""
        return BatchTable(ranges=[list(entry) for entry in self.schedule.depths])


def export(options: Options) -> Exported:
    """Record, profile, tune and export, or what of this is there already.

    Raises:
        ValueError: a command was refused, or the schedule is deeper than the recorded drafts.
    """
    out, shared = options.out.resolve(), options.shared()
    depth = max(options.depths)
    trace = kept(["record", *shared, f"record.depth={depth}"], out / "trace") / "trace.parquet"
    profile = kept(["profile", *shared, "profile.path=null", *options.profile], out / "profile")
    schedule = options.schedule or _tuned(options, trace, profile / "profile.json")
    loaded = load_schedule(schedule)
    if loaded.max_depth > depth:
        raise ValueError(
            f"the schedule {schedule} drafts up to {loaded.max_depth}, and drafts of {depth} were recorded: "
            f"add {loaded.max_depth} to --depths"
        )
    return Exported(
        trace=read_trace(trace),
        cost=profile_cost(profile / "profile.json"),
        schedule=loaded,
        config=_config(schedule.resolve(), out / "export") if loaded.max_depth > 0 else None,
    )


def fixed(depths: Sequence[int]) -> dict[int, Fixed]:
    """Policies by depth; 0 is no speculation."""
    return {depth: Fixed(depth=depth) for depth in (0, *depths)}


def _tuned(options: Options, trace: Path, profile: Path) -> Path:
    folder = options.out.resolve() / "tune"
    sizes = options.batch_sizes if options.batch_sizes[0] == 1 else [1, *options.batch_sizes]
    arguments = [
        *("tune", f"trace={trace}", "cost=profile", f"cost.path={profile}"),
        *(f"tune.batch_sizes={sizes}", f"tune.max_batch_size={max(sizes)}"),
        f"out={folder / 'schedule.json'}",
    ]
    return kept(arguments, folder) / "schedule.json"


def _config(schedule: Path, folder: Path) -> dict[str, Any]:
    path = folder / "speculative.json"
    arguments = ["export", "to=vllm", f"export.schedule={schedule}", "export.method=ngram"]
    kept([*arguments, f"export.out={path}"], folder)
    return json.loads(path.read_text(encoding="utf-8"))
