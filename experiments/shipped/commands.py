"""Commands on recordings, and their results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dspark.metrics.trace import read_jsonl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dspark.analysis.replay.headroom import PairedSpeeds

NUM_RESAMPLES, CONFIDENCE, SEED = 1000, 0.95, 0


def policy_list(key: str, entries: Sequence[str]) -> str:
    """The setting ``key=[...]`` of these entries, each in quotes."""
    quoted = ",".join(f"'{entry}'" for entry in entries)
    return f"{key}=[{quoted}]"


def replay(
    trace: Path, entries: Sequence[str], batch_sizes: Sequence[int], cost: Sequence[str], folder: Path
) -> dict[str, Any]:
    """What `dspark replay` found: the contents of its ``replay.json``; what ended there is not run again."""
    from experiments.reproduce.commands import dspark

    if not (folder / "replay.json").is_file():
        arguments = [
            *("replay", f"trace={trace}", *cost, policy_list("policies", entries)),
            *(f"replay.batch_sizes={list(batch_sizes)}", f"replay.num_resamples={NUM_RESAMPLES}"),
            *(f"replay.confidence={CONFIDENCE}", f"replay.seed={SEED}"),
        ]
        dspark(arguments, folder)
    return json.loads((folder / "replay.json").read_text(encoding="utf-8"))


def paired(trace: Path, folder: Path, batch_size: int) -> PairedSpeeds:
    """The speeds of all that was replayed into the folder at a batch size, on the same draws of requests."""
    import numpy as np

    from dspark.analysis.replay.files import read_trace
    from dspark.analysis.replay.headroom import paired_speeds

    seconds = {
        item["row"]["policy"]: np.array(item["modelled_request_s"])
        for item in read_jsonl(folder / "cells.jsonl")
        if item["row"]["batch_size"] == batch_size
    }
    return paired_speeds(
        read_trace(trace).output_tokens,
        seconds,
        num_resamples=NUM_RESAMPLES,
        confidence=CONFIDENCE,
        seed=SEED,
    )


def compare(
    settings: Sequence[str], entries: Sequence[str], batch_sizes: Sequence[int], folder: Path
) -> dict[str, Any]:
    """The ``summary.json`` of live runs by `dspark compare`; cells that have ended are not run again."""
    from experiments.reproduce.commands import dspark

    arguments = [
        *("compare", *settings, policy_list("compare.policies", entries)),
        f"compare.batch_sizes={list(batch_sizes)}",
    ]
    return json.loads((dspark(arguments, folder) / "summary.json").read_text(encoding="utf-8"))


def by_cell(summary: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of a comparison by policy and batch size."""
    return {(row["policy"], row["batch_size"]): row for row in summary["rows"]}
