"""Profiles on disk: a versioned JSON file, replaced in one stroke, read with every value checked."""

from __future__ import annotations

import json
import os
import types
import typing
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dspark.cost.fit import fit_linear
from dspark.cost.profile import (
    SCHEMA,
    DraftPoint,
    Machine,
    PassPoint,
    Profile,
    ProfiledDrafter,
    ProfiledModel,
)
from dspark.cost.profile_cost import ProfileCost

if TYPE_CHECKING:
    from dspark.cost.base import CostModel

AGAIN = "run `dspark profile` and give its file as cost.path"


def profile_cost(path: Path, kind: Literal["table", "linear"] = "table") -> CostModel:
    """The cost model that a profile says.

    Args:
        path: of a file that `dspark profile` wrote.
        kind: ``table``, the measured seconds (``ProfileCost``), or ``linear``, the line fitted to
            them (``fit_linear``).

    Raises:
        ValueError: the file is missing, is no profile, or is one of another version.
    """
    profile = load_profile(path)
    return ProfileCost.of(profile) if kind == "table" else fit_linear(profile).cost


def save_profile(profile: Profile, path: Path) -> None:
    """Write the profile, and the linear fit for readers who want no table, in one stroke."""
    fit = fit_linear(profile)
    written = {"schema": SCHEMA, **asdict(profile), "fit": asdict(fit)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(written, allow_nan=False, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def load_profile(path: Path) -> Profile:
    """The profile in a file. Its ``fit`` is derived, and not read.

    Raises:
        ValueError: the file is missing, is no profile, or is one of another version; one line each.
    """
    path = Path(path)
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no profile {path}: {AGAIN}") from error
    except OSError as error:
        raise ValueError(f"cannot read the profile {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"the profile {path} is not JSON ({error}): {AGAIN}") from error
    if not isinstance(written, dict) or "schema" not in written:
        raise ValueError(f"{path} is no profile, it has no schema: {AGAIN}")
    if written["schema"] != SCHEMA:
        raise ValueError(
            f"the profile {path} has schema {written['schema']!r}, and this version reads {SCHEMA}: {AGAIN}"
        )
    node = {key: value for key, value in written.items() if key not in ("schema", "fit")}
    try:
        return _read(node, Profile, "")
    except ValueError as error:
        raise ValueError(f"the profile {path}: {error}") from error


_HINTS = {cls: typing.get_type_hints(cls) for cls in (Machine, ProfiledModel, ProfiledDrafter, PassPoint)}
_HINTS |= {cls: typing.get_type_hints(cls) for cls in (DraftPoint, Profile)}
_WORDS = {int: "a whole number", float: "a number", str: "a text"}


def _read(value: Any, hint: Any, where: str) -> Any:
    """The value as what the annotation of its field says.

    Raises:
        ValueError: it is something else, by its place in the file.
    """
    if isinstance(hint, types.GenericAlias):  # tuple[X, ...]
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list, got {value!r}")
        return tuple(_read(item, hint.__args__[0], f"{where}[{i}]") for i, item in enumerate(value))
    if is_dataclass(hint):
        return _record(value, typing.cast("type", hint), where)
    is_number = hint is float and isinstance(value, int | float)
    if not (is_number or isinstance(value, hint)) or isinstance(value, bool):
        raise ValueError(f"{where} must be {_WORDS[hint]}, got {value!r}")
    return float(value) if hint is float else value


def _record(value: Any, cls: type, where: str) -> Any:
    """The record of that class whose fields are the keys of ``value``."""
    known = [item.name for item in fields(cls)]
    if not isinstance(value, dict) or value.keys() != set(known):
        got = ", ".join(value) if isinstance(value, dict) else repr(value)
        raise ValueError(f"{where or 'it'} must have {', '.join(known)}, got {got or 'nothing'}")
    prefix = f"{where}." if where else ""
    found = {name: _read(value[name], _HINTS[cls][name], f"{prefix}{name}") for name in known}
    try:
        return cls(**found)
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error
