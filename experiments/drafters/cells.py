"""One measurement a drafter, set of prompts and temperature, each a `dspark run` whose folder is kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark.cli.main import main as dspark
from experiments.drafters.rounds import rounds_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Prompts that training leaves out: a file of DeepSpec's evaluation sets, behind its first records."""

    file: str
    skip: int = 0

    @property
    def name(self) -> str:
        """In tables."""
        return self.file.removesuffix(".jsonl")


HELD_OUT = (
    HeldOut(file="gsm8k.jsonl", skip=1000),
    HeldOut(file="humaneval.jsonl"),
    HeldOut(file="mt-bench.jsonl"),
    HeldOut(file="aime25.jsonl"),
)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A drafter: its name in tables, its kind (an option of the group ``drafter``) and its source.

    Raises:
        ValueError: see :meth:`parsed`.
    """

    name: str
    kind: str
    source: str | None = None

    @classmethod
    def parsed(cls, text: str) -> Contender:
        """From ``NAME=KIND[:SOURCE]``, such as ``dflash=block:outputs/dflash/drafter``.

        Raises:
            ValueError: it is not of that form.
        """
        name, equals, rest = text.partition("=")
        kind, _, source = rest.partition(":")
        if not (name and equals and kind):
            raise ValueError(f"a drafter is NAME=KIND[:SOURCE], such as ngram=ngram, got {text!r}")
        return cls(name=name, kind=kind, source=source or None)

    def overrides(self) -> list[str]:
        """Settings of `dspark run`."""
        source = [] if self.source is None else [f"drafter.source={self.source}"]
        return [f"drafter={self.kind}", *source]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A measurement."""

    contender: Contender
    held_out: HeldOut
    temperature: float

    def folder(self, out: Path) -> Path:
        """Where its run lies."""
        return out / f"{self.contender.name}-{self.held_out.name}-t{self.temperature:g}"


def measured(cell: Cell, *, data: Path, out: Path, depth: int, extra: Sequence[str]) -> dict[str, Any]:
    """The summary row of the cell; run now unless its folder holds a whole run of the same command.

    Two columns are added: ``tokens_a_round`` and ``drafted_share``, of :func:`rounds_of`.

    Raises:
        ValueError: the run was refused; its message went to stderr.
    """
    folder = cell.folder(out)
    arguments = [
        "run",
        *cell.contender.overrides(),
        *("policy=fixed", f"policy.depth={depth}", "verification=rejection", "tracker=none"),
        *(f"workload.path={data / cell.held_out.file}", f"workload.skip={cell.held_out.skip}"),
        f"sampling.temperature={cell.temperature:g}",
        *extra,
        f"hydra.run.dir={folder}",
    ]
    path = folder / "summary.json"
    asked = folder / "asked.json"
    if path.is_file() and asked.is_file() and json.loads(asked.read_text()) == arguments:
        summary = json.loads(path.read_text())
        if summary["complete"]:
            return _row(summary, folder)
    if folder.exists():
        raise ValueError(f"{folder} holds another run, or a part of one: remove it, or give another --out")
    if dspark(arguments) != 0:
        raise ValueError(f"dspark {' '.join(arguments)} did not end well; see above")
    asked.write_text(json.dumps(arguments))
    return _row(json.loads(path.read_text()), folder)


def _row(summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {**summary["rows"][0], **rounds_of(folder)}
