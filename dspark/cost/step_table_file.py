"""Step tables as the configuration gives them: lists, or a JSON file of the same lists."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from dspark.cost.step_table import StepTable


def step_table(
    path: Path | None = None,
    tokens: list[int] | None = None,
    target_s: list[float] | None = None,
    steps_per_s: list[float] | None = None,
    interpolate: bool = False,
    draft_rows: list[int] | None = None,
    draft_depths: list[int] | None = None,
    draft_s: list[list[float]] | None = None,
    overhead_s: float = 0.0,
) -> StepTable:
    """A step table from its lists, or from a JSON file that holds an object of them.

    Args:
        path: the file; the other arguments are those of ``StepTable``, and are left out beside it.

    Raises:
        ValueError: neither or both are given, the file cannot be read, or ``StepTable`` refuses it.
    """
    inline = {
        "target_s": target_s,
        "steps_per_s": steps_per_s,
        "draft_rows": draft_rows,
        "draft_depths": draft_depths,
        "draft_s": draft_s,
    }
    if path is None:
        if tokens is None:
            raise ValueError(
                "a step table needs tokens with target_s or steps_per_s, or the path of a file that has them"
            )
        return StepTable(tokens=tokens, interpolate=interpolate, overhead_s=overhead_s, **inline)
    given = [name for name, value in {"tokens": tokens, **inline}.items() if value is not None]
    given += ["interpolate"] * interpolate + ["overhead_s"] * (overhead_s != 0)
    if given:
        raise ValueError(
            f"a step table comes from its path or from its lists, got path and {', '.join(given)}"
        )
    return load_step_table(path)


def load_step_table(path: Path) -> StepTable:
    """The step table in a JSON file: an object whose keys are fields of ``StepTable``.

    Raises:
        ValueError: there is no such file, it is no such object, or ``StepTable`` refuses it.
    """
    try:
        written = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the step table {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"the step table {path} must be a JSON object, got: {error}") from error
    known = {field.name for field in fields(StepTable)}
    if not isinstance(written, dict) or "tokens" not in written or not written.keys() <= known:
        keys = ", ".join(written) if isinstance(written, dict) else type(written).__name__
        raise ValueError(
            f"the step table {path} must be an object with tokens and any of "
            f"{', '.join(sorted(known - {'tokens'}))}, got {keys or 'nothing'}"
        )
    _check_numbers(written, path)
    try:
        return StepTable(**written)
    except ValueError as error:
        raise ValueError(f"the step table {path}: {error}") from error


_NESTING = {
    "tokens": 1,
    "target_s": 1,
    "steps_per_s": 1,
    "draft_rows": 1,
    "draft_depths": 1,
    "draft_s": 2,
    "overhead_s": 0,
}
"""How deep the numbers of each field of a file are nested in lists."""


def _check_numbers(written: dict[str, Any], path: Path) -> None:
    """Raises where a file has something else than the numbers, true or false that belong there."""
    for name, value in written.items():
        if name == "interpolate":
            is_right = isinstance(value, bool)
        else:
            is_right = value is None or _is_nested(value, _NESTING[name])
        if not is_right:
            kind = ("a number", "a list of numbers", "lists of numbers")[_NESTING.get(name, 0)]
            kind = "true or false" if name == "interpolate" else kind
            raise ValueError(f"the step table {path}: {name} must be {kind}, got {value!r}")


def _is_nested(value: Any, depth: int) -> bool:
    if depth == 0:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, list) and all(_is_nested(item, depth - 1) for item in value)
