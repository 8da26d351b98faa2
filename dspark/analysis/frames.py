"""The artefacts of a run as pandas frames, for notebooks and figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from dspark.metrics.summary import SUMMARY_SCHEMA
from dspark.metrics.time_fields import MODELLED, by_modelled_clock, time_field
from dspark.metrics.trace import read_jsonl

if TYPE_CHECKING:
    from pathlib import Path


def read_summary(run_dir: Path) -> dict[str, Any]:
    """The parsed ``summary.json`` of a run's folder.

    Raises:
        ValueError: there is none, or another version of the package wrote it.
    """
    path = run_dir / "summary.json"
    if not path.is_file():
        raise ValueError(
            f"{run_dir} has no summary.json: nothing has finished there; resume it with resume=true"
        )
    summary = json.loads(path.read_text(encoding="utf-8"))
    if summary.get("schema") != SUMMARY_SCHEMA:
        raise ValueError(f"{path} has schema {summary.get('schema')!r}, and {SUMMARY_SCHEMA} is read here")
    return summary


def summary_frame(run_dir: Path) -> pd.DataFrame:
    """One row a summary row; nested values stay objects.

    Raises:
        ValueError: see ``read_summary``.
    """
    return pd.DataFrame(read_summary(run_dir)["rows"])


def steps_frame(run_dir: Path) -> pd.DataFrame:
    """One row a step: its cell, times (``modelled_*`` of a modelled run) and sums over its decode rows."""
    return pd.DataFrame([_step(item) for item in read_jsonl(run_dir / "steps.jsonl")])


def rows_frame(run_dir: Path) -> pd.DataFrame:
    """One row a decode row of a step: the fields of ``RowRecord``, with its cell and step."""
    parts = [
        pd.DataFrame({"cell": item["cell"], "attempt": item["attempt"], "step": item["step"], **item["rows"]})
        for item in read_jsonl(run_dir / "steps.jsonl")
        if item["rows"]["request_id"]
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _step(item: dict[str, Any]) -> dict[str, Any]:
    rows = item["rows"]
    counters = ("drafted", "verified", "accepted_emitted", "emitted")
    sums = {f"{name}_tokens": sum(rows[name]) for name in counters}
    is_modelled = by_modelled_clock(item)
    prefix, split_field = MODELLED * is_modelled, time_field("time_split_s", is_modelled=is_modelled)
    split = {f"{prefix}{phase}_s": seconds for phase, seconds in item[split_field].items()}
    plain = {key: value for key, value in item.items() if key not in ("rows", "tokens", split_field)}
    return {**plain, "num_decode_rows": len(rows["request_id"]), **sums, **split}
