"""Logs of when requests came, and how long they were: CSV or JSON lines with a request a row.

Times are numbers of seconds, or dates and times, as in the public Azure LLM inference traces
(https://github.com/Azure/AzurePublicDataset): ``TIMESTAMP``, ``ContextTokens``, ``GeneratedTokens``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a log calls its columns; counts of tokens may be missing from it."""

    time: str
    prompt_tokens: str | None = None
    output_tokens: str | None = None


OWN = Columns(time="arrival_s", prompt_tokens="prompt_tokens", output_tokens="output_tokens")
AZURE = Columns(time="TIMESTAMP", prompt_tokens="ContextTokens", output_tokens="GeneratedTokens")
KNOWN = (OWN, AZURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalLog:
    """Q requests in the order of their arrival."""

    arrival_s: np.ndarray  # float64 [Q], seconds after the first one, ascending from 0
    prompt_tokens: np.ndarray | None  # int64 [Q]; None: the log does not say
    output_tokens: np.ndarray | None  # int64 [Q]


def read_arrivals(path: Path, columns: Columns | None = None) -> ArrivalLog:
    """The arrivals of a log, sorted by time, the first one at 0.

    Args:
        path: ``.csv``, or ``.jsonl`` with an object a line.
        columns: their names; None: the ones of ``KNOWN`` whose time column is there.

    Raises:
        ValueError: no such file, no such column, or a value that is no time or no count.
    """
    table = _table(path)
    named = columns or _found(table, path)
    for name in (named.time, *((named.prompt_tokens, named.output_tokens) if columns else ())):
        if name is not None and name not in table.columns:
            raise ValueError(f"{path} has no column {name!r}: it has {', '.join(map(str, table.columns))}")
    time_s = _seconds(_column(table, named.time), path)
    order = np.argsort(time_s, kind="stable")
    counts = {
        name: (
            None
            if column is None or column not in table.columns
            else _counts(_column(table, column), path)[order]
        )
        for name, column in (("prompt_tokens", named.prompt_tokens), ("output_tokens", named.output_tokens))
    }
    return ArrivalLog(arrival_s=time_s[order] - time_s[order[0]], **counts)


def _table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise ValueError(f"there is no log of arrivals {path}")
    if path.suffix not in (".csv", ".jsonl"):
        raise ValueError(f"a log of arrivals is a .csv or a .jsonl file, got {path.name}")
    try:
        # not read_json, which turns columns of certain names into dates by itself
        table = pd.read_csv(path) if path.suffix == ".csv" else pd.DataFrame(_objects(path))
    except ValueError as error:  # pandas' own errors are
        raise ValueError(f"cannot read {path}: {str(error).splitlines()[0]}") from error
    if len(table) == 0:
        raise ValueError(f"{path} holds no arrival")
    return table


def _objects(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _found(table: pd.DataFrame, path: Path) -> Columns:
    for columns in KNOWN:
        if columns.time in table.columns:
            return columns
    raise ValueError(
        f"{path} must have a column {' or '.join(columns.time for columns in KNOWN)}, got "
        f"{', '.join(map(str, table.columns))}: name yours with Columns(time=...)"
    )


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    return cast("pd.Series", table[name])


def _seconds(values: pd.Series, path: Path) -> np.ndarray:
    """Float64 [Q]: numbers as they are, dates and times as seconds after an arbitrary one."""
    seconds = _numbers(values)
    if not np.isnan(seconds).all():
        _refuse(~np.isfinite(seconds), values, path, "a number of seconds")
        return seconds
    times = pd.to_datetime(values.astype(str), utc=True, format="ISO8601", errors="coerce")
    _refuse(np.asarray(times.isna()), values, path, "a number of seconds, or a date and time in ISO 8601")
    # differences before floats: seconds since 1970 leave no room for microseconds in one
    return np.asarray((times - times.iloc[0]).dt.total_seconds(), dtype=np.float64)


def _numbers(values: pd.Series) -> np.ndarray:
    """Float64 [Q], NaN for what is no number."""
    return np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)


def _counts(values: pd.Series, path: Path) -> np.ndarray:
    numbers = _numbers(values)
    wrong = ~np.isfinite(numbers)
    wrong[~wrong] = (numbers[~wrong] < 0) | (numbers[~wrong] % 1 != 0)
    _refuse(wrong, values, path, "a whole number of tokens, >= 0")
    return numbers.astype(np.int64)


def _refuse(wrong: np.ndarray, values: pd.Series, path: Path, wanted: str) -> None:
    """Raises for the first row that is wrong, counted from 1 without the header."""
    if bool(wrong.any()):
        row = int(wrong.argmax())
        raise ValueError(f"{path} row {row + 1}: {values.name} must be {wanted}, got {values.iloc[row]!r}")
