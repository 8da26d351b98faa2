"""Tables and figures of collected runs: one a command and clock, with the settings that differ in front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.analysis.collected import COMPLETE, IDENTITY
from dspark.analysis.figures import BATCH_SIZE, draw_throughput
from dspark.analysis.report import columns_of, is_fastest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rich.table import Table

    Line = Mapping[str, Any]
    Column = tuple[str, str, Callable[[Any], str]]

_SAME = ("target", "drafter", "verification", "workload", "numerics", "temperature", "cost_model")
"""Fields of a row that are told once where they do not differ."""
_MEASURED = ("policy", BATCH_SIZE, "num_requests")
"""Fields that every row of `run` and `compare` has."""
_MAX_COLUMNS = 12


def ordered(lines: Sequence[Line], settings: Sequence[str], by: str | None = None) -> list[Line]:
    """The lines by settings, batch size and policy; or by a column, the largest first.

    Raises:
        ValueError: there is no such column.
    """
    if by is None:
        keys = (*settings, BATCH_SIZE, "policy", "run")
        return sorted(lines, key=lambda line: [_rank(line.get(key)) for key in keys])
    known = dict.fromkeys(key for line in lines for key in line)
    if by not in known:
        raise ValueError(f"there is no column {by!r} to sort by: there are {', '.join(known)}")
    there = [line for line in lines if line.get(by) is not None]
    return sorted(there, key=lambda line: _rank(line[by]), reverse=True) + [
        line for line in lines if line.get(by) is None
    ]


def _rank(value: Any) -> tuple[int, float, str]:
    """Numbers, then texts, then what is not there."""
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def groups(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines that may stand in one table: of one command and one clock; lines without results last."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line["clock"] or "~", line["command"] or "~"), []).append(line)
    return [found[key] for key in sorted(found)]


def table_of(lines: Sequence[Line], settings: Sequence[str]) -> Table:
    """One group as a table; of each batch size the fastest row is bold."""
    from rich.table import Table

    is_measured = has_speeds(lines)
    columns = _columns(lines, settings)
    table = Table(title=_title(lines), title_justify="left")
    for heading, _, _ in columns:
        table.add_column(heading, justify="left" if heading in ("run", "state", "policy") else "right")
    for line in lines:
        is_bold = is_measured and is_fastest(line, lines)
        shown = (form(line.get(field)) for _, field, form in columns)
        table.add_row(*shown, style="bold" if is_bold else None)
    return table


def has_speeds(lines: Sequence[Line]) -> bool:
    """True for rows of `run` and `compare`."""
    return all(name in line for name in _MEASURED for line in lines)


def _values(lines: Sequence[Line], key: str) -> list[Any]:
    """The different values of a column."""
    return list({repr(line.get(key)): line.get(key) for line in lines}.values())


def _title(lines: Sequence[Line]) -> str:
    first = lines[0]
    num_runs = len(_values(lines, "run"))
    words = [f"{first['command'] or 'an unknown command'}: {num_runs} runs, {len(lines)} rows"]
    words += [
        f"{name} {first[name]}" for name in _SAME if first.get(name) is not None and _is_same(lines, name)
    ]
    if first["clock"] == "modelled":
        words.append("seconds are modelled")
    return "; ".join(words)


def _is_same(lines: Sequence[Line], key: str) -> bool:
    return len(_values(lines, key)) == 1


def _columns(lines: Sequence[Line], settings: Sequence[str]) -> list[Column]:
    front = ["run", *(["state"] if any(line["state"] != COMPLETE for line in lines) else [])]
    front += [key for key in (*settings, *_SAME) if not _is_same(lines, key)]
    front = list(dict.fromkeys(front))
    if has_speeds(lines):
        front = [key for key in front if key not in ("policy", BATCH_SIZE)]  # have their columns
        behind = [
            column
            for column in columns_of(lines[0]["clock"] == "modelled")
            if any(line.get(column[1]) is not None for line in lines)
        ]
        return [*((key.replace(".", ".\n"), key, _cell) for key in front), *behind]
    fields = dict.fromkeys(key for line in lines for key in line)
    other = [key for key in fields if key not in (*IDENTITY, *front) and not key.endswith("sha256")]
    if len(lines) > 1:
        other = [key for key in other if not _is_same(lines, key)] or other
    return [(key.replace("_", " "), key, _cell) for key in (*front, *other)][:_MAX_COLUMNS]


def swept_number(lines: Sequence[Line], settings: Sequence[str]) -> str | None:
    """What a figure's horizontal axis is: the batch size, else the one number that was swept."""
    if not _is_same(lines, BATCH_SIZE):
        return BATCH_SIZE
    numbers = [key for key in settings if _is_number(lines, key) and not _is_same(lines, key)]
    return numbers[0] if len(numbers) == 1 else None


def _is_number(lines: Sequence[Line], key: str) -> bool:
    values = [line.get(key) for line in lines]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def draw(lines: Sequence[Line], settings: Sequence[str], path: Path, x: str) -> Path:
    """``path``, which then holds a figure of tokens/s against a number, a line a policy and setting.

    Raises:
        ValueError: some row lacks the number.
    """
    if not _is_number(lines, x):
        numbers = [key for key in (BATCH_SIZE, *settings) if _is_number(lines, key)]
        raise ValueError(
            f"cannot draw against {x!r}, which is no number in every row; {', '.join(numbers)} is"
        )
    drawn = [{**line, "policy": _label(line, lines, settings, x)} for line in lines]
    requests = " or ".join(str(value) for value in _values(lines, "num_requests"))
    targets = ", ".join(str(value) for value in _values(lines, "target"))
    workloads = ", ".join(str(value) for value in _values(lines, "workload"))
    return draw_throughput(drawn, path, title=f"{targets}, {requests} requests of {workloads}", x=x)


def _label(line: Line, lines: Sequence[Line], settings: Sequence[str], x: str) -> str:
    """What a line of the figure is called: the policy, and what else differs."""
    of_policy = x.startswith("policy.")
    words = [line["policy"].split()[0] if of_policy else line["policy"]]
    told = ("policy", x, "engine.max_batch_size" if x == BATCH_SIZE else "")
    for key in settings:
        is_in_label = key.startswith("policy.") and not of_policy
        if key not in told and not is_in_label and not _is_same(lines, key):
            words.append(f"{key.rpartition('.')[2]}={line.get(key)}")
    return ", ".join(words)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:.4g}"
    return str(value)
