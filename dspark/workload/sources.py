"""Where prompt records come from: the built-in set, a JSONL file, or a data set.

JSONL is read here and not by the ``datasets`` library, which would be imported (a second), copy
the file into a cache, give every record the same fields, and name no line when one is malformed.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from itertools import chain, zip_longest
from pathlib import Path

from dspark.workload.records import Record

DOMAINS = ("math", "code", "chat")
"""Domains of the built-in prompts."""

_FILE_SUFFIXES = (".jsonl", ".json", ".ndjson", ".txt", ".csv", ".parquet")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def builtin_records(domains: tuple[str, ...]) -> list[Record]:
    """The built-in prompts of these domains, interleaved: the first n hold every domain."""
    folder = resources.files("dspark.workload") / "data"
    columns = [_parse_jsonl((folder / f"{name}.jsonl").read_bytes(), f"{name}.jsonl") for name in domains]
    return [record for record in chain.from_iterable(zip_longest(*columns)) if record is not None]


def jsonl_path(path: str) -> Path | None:
    """The JSONL file that ``path`` names, or None where it names a data set.

    Raises:
        ValueError: there is no such file, and it cannot be a data set either.
    """
    file = Path(path).expanduser()
    if file.is_file():
        return file
    if file.is_dir():
        return None
    # asking the hub for what was meant as a file takes half a minute without a network
    if not _HUB_ID.fullmatch(path) or file.suffix in _FILE_SUFFIXES or file.parent.is_dir():
        raise ValueError(
            f"no such prompt file: {path!r}: give an existing JSONL file, a folder with a data set, "
            "or a hub id as owner/name"
        )
    return None


def jsonl_records(path: Path) -> list[Record]:
    """The records of a JSONL file, one a line; blank lines are skipped.

    Raises:
        ValueError: the file cannot be read or holds no record, or a line is no JSON object.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the prompt file {path}: {error.strerror}") from error
    records = _parse_jsonl(data, str(path))
    if not records:
        raise ValueError(f"{path}: holds no prompts: put one JSON object on each line")
    return records


def dataset_records(path: str, config: str | None, split: str | None) -> list[Record]:
    """The records of a data set that the ``datasets`` library loads from the hub or a folder.

    Args:
        path: hub id ``owner/name``, or a folder.
        config: the data set's configuration, for those that have several.
        split: such as ``"test"`` or ``"train[:100]"``; None takes the only one.

    Raises:
        ValueError: it cannot be loaded, the split is missing or ambiguous, or it is empty.
    """
    import datasets

    try:
        loaded = datasets.load_dataset(path, config, split=split)
    except Exception as error:  # the library raises its dependencies' errors: network, format, ...
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ValueError(
            f"cannot load the data set {path!r} (config {config}, split {split}): {reason}: "
            "check these names and the network"
        ) from error
    if isinstance(loaded, datasets.DatasetDict):
        if len(loaded) != 1:
            splits = ", ".join(map(str, loaded))
            raise ValueError(f"the data set {path!r} has several splits: choose split from {splits}")
        split, loaded = next((str(name), part) for name, part in loaded.items())
    if not isinstance(loaded, datasets.Dataset) or len(loaded) == 0:
        raise ValueError(f"the data set {path!r}, split {split}, holds no prompts")
    name = Path(path).name
    return [
        Record(fields=row, where=f"{path}[{split}] row {i}", default_id=f"{name}-{i}", default_domain=name)
        for i, row in enumerate(loaded)
        if isinstance(row, dict)
    ]


def _parse_jsonl(data: bytes, name: str) -> list[Record]:
    """Records of JSONL text; lines end at a newline byte only (str.splitlines would also cut at U+2028)."""
    stem = Path(name).stem
    records = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            fields = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: not UTF-8 at byte {error.start} of the line") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: malformed JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(fields, dict):
            raise ValueError(f"{where}: one JSON object a line is expected, got {type(fields).__name__}")
        records.append(Record(fields=fields, where=where, default_id=f"{stem}-{number}", default_domain=stem))
    return records
