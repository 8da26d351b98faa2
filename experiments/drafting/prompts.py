"""Prompts by domain: evaluation sets that training left out, or the built-in ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.drafters.cells import HELD_OUT, HeldOut
from experiments.reproduce import REPO, Need, Setting

if TYPE_CHECKING:
    from experiments.reproduce import Context

BUILTIN = "builtin"
DATA = Setting(
    name="data",
    what="folder of DeepSpec's eval_datasets (gsm8k.jsonl, humaneval.jsonl, mt-bench.jsonl), or builtin; the "
    "default falls back to builtin where there is no such folder",
    default=str(REPO.parent / "shared" / "data" / "eval_datasets"),
)
QUICK_REQUESTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A kind of prompts: the built-in ones of that name, or a file of the folder."""

    name: str
    held_out: HeldOut


DOMAINS = tuple(
    Domain(name=name, held_out=held_out)
    for name, held_out in zip(("math", "code", "chat"), HELD_OUT, strict=False)
)


def workload(context: Context, domain: Domain, num_requests: int) -> list[str]:
    """Settings of a `dspark` command that runs so many prompts of a domain; in a shortened run, few."""
    folder = data_folder(context)
    count = f"workload.num_requests={QUICK_REQUESTS if context.quick else num_requests}"
    if folder is None:
        return [f"workload.domains=[{domain.name}]", count]
    return [
        f"workload.path={folder / domain.held_out.file}",
        f"workload.skip={domain.held_out.skip}",
        count,
    ]


def mixture(context: Context, num_requests: int) -> list[str]:
    """The same of all domains in turn; where they come from files, one file of them is written first."""
    folder = data_folder(context)
    count = f"workload.num_requests={len(DOMAINS) * QUICK_REQUESTS if context.quick else num_requests}"
    if folder is None:
        return [count]
    each = -(-num_requests // len(DOMAINS))
    columns = [_first(folder, domain.held_out, each) for domain in DOMAINS]
    path = context.folder / "prompts.jsonl"
    lines = [line for lines in zip(*columns, strict=False) for line in lines]  # a short file is told later
    path.write_text("".join(lines), encoding="utf-8")
    return [f"workload.path={path}", count]


def data_folder(context: Context) -> Path | None:
    """The folder of the setting; None where the built-in prompts serve."""
    value = context.settings[DATA.name]
    if context.quick or value == BUILTIN or value is None:
        return None
    folder = Path(value).expanduser()
    return None if value == DATA.default and not folder.is_dir() else folder


def where_from(context: Context) -> str:
    """A sentence about the prompts, for notes."""
    folder = data_folder(context)
    if folder is None:
        return (
            "Prompts are the built-in ones. This project's recipes train drafters on answers to them, so "
            "that acceptance is higher than on new prompts."
        )
    sets = ", ".join(f"{domain.held_out.name} ({domain.name})" for domain in DOMAINS)
    return (
        f"Prompts are of {sets}, gsm8k from record {HELD_OUT[0].skip + 1} on; this project's recipes leave "
        "them out of training."
    )


def _first(folder: Path, held_out: HeldOut, count: int) -> list[str]:
    """Lines of the file, behind those that are skipped, with ids that differ between files."""
    from dspark.workload.records import prompt_of
    from dspark.workload.sources import jsonl_records

    records = jsonl_records(folder / held_out.file)[held_out.skip :][:count]
    prompts = [prompt_of(record).messages[-1].content for record in records]
    return [
        json.dumps({"id": f"{held_out.name}-{place}", "prompt": prompt}) + "\n"
        for place, prompt in enumerate(prompts, start=held_out.skip + 1)
    ]


def _missing(context: Context) -> str | None:
    folder = data_folder(context)
    if folder is None:
        return None
    lacking = [d.held_out.file for d in DOMAINS if not (folder / d.held_out.file).is_file()]
    if not lacking:
        return None
    return (
        f"{folder} has no {', '.join(lacking)}: give {DATA.name}=DIR, a folder of DeepSpec's eval_datasets, "
        f"or {DATA.name}={BUILTIN}"
    )


DATA_NEED = Need(what="prompts by domain", missing=_missing)
