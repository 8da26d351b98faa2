"""A trace on disk: Parquet, a row a position, and what belongs to requests in the schema's metadata."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.types import Signal

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
_KEY = b"dspark_trace"


def write_trace(trace: AcceptanceTrace, path: Path) -> Path:
    """``path``, which then holds the trace, whole or not at all."""
    counts = trace.output_tokens - 1
    position = np.concatenate([np.arange(1, count + 1) for count in counts])
    columns: dict[str, Any] = {
        "request": np.repeat(np.arange(trace.num_requests), counts).astype(np.int32),
        "position": position.astype(np.int32),
        "drafted": trace.drafted.astype(np.int16),
        "accepted": trace.accepted.astype(np.int16),
    }
    for signal, values in trace.signals.items():
        # one number after another, of the drafted tokens alone
        kept = np.arange(trace.depth) < trace.drafted[:, None]
        ends = np.concatenate([[0], np.cumsum(trace.drafted)]).astype(np.int32)
        columns[signal.value] = pa.ListArray.from_arrays(pa.array(ends), pa.array(values[kept]))
    about = {
        "schema": SCHEMA,
        "depth": trace.depth,
        "autoregressive": trace.autoregressive,
        "request_ids": list(trace.request_ids),
        **{name: getattr(trace, name).tolist() for name in _OF_REQUESTS},
        "origin": dict(trace.origin),
        "visited_only": trace.visited_only,
    }
    table = pa.table(columns)
    table = table.replace_schema_metadata({_KEY: json.dumps(about).encode()})
    partial = path.with_name(path.name + ".partial")
    pq.write_table(table, partial, compression="zstd")
    os.replace(partial, path)
    return path


def read_trace(path: Path) -> AcceptanceTrace:
    """The trace of a file.

    Raises:
        ValueError: there is none, it is no trace, or one of another version.
    """
    if not path.is_file():
        raise ValueError(f"there is no trace {path}: make one with `dspark record`")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"cannot read the trace {path}: {error}; record it again") from error
    about = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    if about.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} must be a trace of version {SCHEMA}, got {about.get('schema', 'none')}: record it again"
        )
    drafted = table["drafted"].to_numpy().astype(np.int64)
    depth = about["depth"]
    signals = {}
    for name in table.column_names[len(_FIXED) :]:
        values = np.full((len(drafted), depth), np.nan)
        values[np.arange(depth) < drafted[:, None]] = table[name].combine_chunks().flatten().to_numpy()
        signals[Signal(name)] = values
    return AcceptanceTrace(
        depth=depth,
        request_ids=tuple(about["request_ids"]),
        **{name: np.array(about[name], dtype=np.int64) for name in _OF_REQUESTS},
        drafted=drafted,
        accepted=table["accepted"].to_numpy().astype(np.int64),
        signals=signals,
        autoregressive=about["autoregressive"],
        origin=about["origin"],
        visited_only=about.get("visited_only", False),
    )


_OF_REQUESTS = ("prompt_tokens", "output_tokens", "max_tokens")
_FIXED = ("request", "position", "drafted", "accepted")
