"""A run's Weights & Biases mirror read back from its offline folder; nothing is sent anywhere.

An offline run is one file of records, ``run-<id>.wandb``: seven bytes of W&B's own, then blocks of
32 KiB in LevelDB's log format (github.com/google/leveldb, doc/log_format.md), with zlib's CRC-32 in
place of CRC-32C. A record is a protobuf message whose description comes with the package ``wandb``.
"""

from __future__ import annotations

import importlib
import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC = b":W&B"
_START = 7  # bytes before the first record: the magic word, a number and a version
_BLOCK = 1 << 15
_HEADER = struct.Struct("<IHB")  # of a piece: checksum, length, kind
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SUMMARY = "summary/"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRun:
    """What `dspark` mirrored; cells are called as W&B calls them, ``fixed_4/batch_1``, or empty."""

    run_id: str
    config: dict[str, Any]  # settings and provenance
    steps: pd.DataFrame  # a row a step: ``cell`` and the numbers of ``metrics.tracker.step_numbers``
    summary: pd.DataFrame  # a row a cell: ``cell`` and the numbers of its summary row


def read_offline_run(folder: Path) -> OfflineRun:
    """The mirror in a folder: a run's own, or ``wandb/offline-run-*`` in it; the newest if there are several.

    A run that was killed is read up to the last whole record.

    Raises:
        ValueError: there is no such file, or it is damaged before its end.
    """
    files = sorted({*folder.glob("run-*.wandb"), *folder.glob("wandb/offline-run-*/run-*.wandb")})
    if not files:
        raise ValueError(f"{folder} holds no offline run of W&B: make one with tracker.mode=offline")
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")  # slow, and without types
    run_id, config, lines, totals = "", {}, [], {}
    for data in _records(files[-1]):
        record = messages.Record.FromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run_id = record.run.run_id
            config |= _items(record.run.config.update)
        elif kind == "history":
            lines.append(_items(record.history.item))
        elif kind == "summary":
            totals |= _items(record.summary.update)
    return OfflineRun(
        run_id=run_id,
        config={key: value for key, value in config.items() if key != "_wandb"},
        steps=pd.DataFrame([_step(line) for line in lines if any(_name(key) == "step" for key in line)]),
        summary=_summary(totals),
    )


def _items(items: Any) -> dict[str, Any]:
    """Keys and values of a record's items; the parts of a nested key are joined by dots."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _step(line: dict[str, Any]) -> dict[str, Any]:
    """A logged line without W&B's own keys, which begin with an underscore."""
    ours = {key: value for key, value in line.items() if not key.startswith("_")}
    cell = next(iter(ours)).rpartition("/")[0]
    return {"cell": cell, **{_name(key): value for key, value in ours.items()}}


def _summary(totals: dict[str, Any]) -> pd.DataFrame:
    rows: dict[str, dict[str, Any]] = {}
    for key, value in totals.items():
        cell, found, name = key.rpartition(_SUMMARY)
        if found:
            rows.setdefault(cell.removesuffix("/"), {})[name] = value
    return pd.DataFrame([{"cell": cell, **numbers} for cell, numbers in rows.items()])


def _records(path: Path) -> Iterator[bytes]:
    """The records of a file in order; a torn one at the end is left out.

    Raises:
        ValueError: it is no such file, or the checksum of a piece is wrong.
    """
    data = path.read_bytes()
    if not data.startswith(_MAGIC):
        raise ValueError(f"{path} is not a W&B run file: it does not begin with {_MAGIC.decode()}")
    at, pieces = _START, []
    while at + _HEADER.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:  # the rest of a block that no header fits into
            at += left
            continue
        checksum, length, kind = _HEADER.unpack_from(data, at)
        piece = data[at + _HEADER.size : at + _HEADER.size + length]
        if len(piece) < length:
            return
        if zlib.crc32(piece, zlib.crc32(bytes([kind]))) != checksum:
            raise ValueError(f"{path} is damaged at byte {at}: copy the run's folder again")
        at += _HEADER.size + length
        pieces = [piece] if kind in (_FULL, _FIRST) else [*pieces, piece]
        if kind in (_FULL, _LAST):
            yield b"".join(pieces)
