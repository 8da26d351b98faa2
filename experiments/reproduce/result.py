"""A finished experiment on disk: ``result.json`` in its folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from dspark.metrics.trace import write_json
from experiments.reproduce.claims import Claim, Shape, counts, overall
from experiments.reproduce.experiment import Figure, ResultTable

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
FILE = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one experiment. Exactly one of three: it ran, it could not (``not_run``), it failed."""

    name: str
    title: str
    question: str
    source: str
    key: str  # of the sources and settings that it belongs to
    quick: bool
    settings: dict[str, str | None]
    command: str
    started_at: str
    seconds: float
    origin: dict[str, Any]  # versions, revision, machine, threads
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[ResultTable, ...] = ()
    not_run: str | None = None  # why
    error: str | None = None  # the traceback

    @property
    def is_finished(self) -> bool:
        """True if it need not run again."""
        return self.not_run is None and self.error is None

    @property
    def verdict(self) -> str:
        """The status of its claims, or ``failed``."""
        return "failed" if self.error is not None else overall(self.claims).value

    @property
    def summary(self) -> str:
        """How many claims came out how, or why there are none."""
        if self.error is not None:
            return self.error.strip().splitlines()[-1]
        if self.not_run is not None:
            return self.not_run
        return ", ".join(f"{number} {status}" for status, number in counts(self.claims).items())


def write_result(folder: Path, result: Result) -> None:
    """``result.json`` in the folder, in one stroke; statuses are written for other readers."""
    told = asdict(result)
    for claim, item in zip(result.claims, told["claims"], strict=True):
        item["status"] = claim.status.value
    write_json(folder / FILE, {"schema": SCHEMA, "verdict": result.verdict, **told})


def read_result(folder: Path) -> Result | None:
    """The result in the folder; None if there is none, or one of another schema.

    Statuses are derived again from the numbers.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    item = json.loads(path.read_text(encoding="utf-8"))
    if item["schema"] != SCHEMA:
        return None
    known = {field.name for field in fields(Result)}
    plain: dict[str, Any] = {name: item[name] for name in known - _RESTORED.keys()}
    restored: dict[str, Any] = {name: tuple(map(make, item[name])) for name, make in _RESTORED.items()}
    return Result(**plain, **restored)


def _claim(item: dict[str, Any]) -> Claim:
    shape = None if item["shape"] is None else Shape(**item["shape"])
    claim = {name: value for name, value in item.items() if name not in ("status", "shape")}
    return Claim(**claim, shape=shape)


def _table(item: dict[str, Any]) -> ResultTable:
    return ResultTable(
        title=item["title"], columns=tuple(item["columns"]), rows=tuple(map(tuple, item["rows"]))
    )


_RESTORED = {"claims": _claim, "figures": lambda item: Figure(**item), "notes": str, "tables": _table}
