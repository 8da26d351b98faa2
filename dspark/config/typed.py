"""From plain YAML values to typed objects: one conversion for configs, policies and other components.

A YAML node is a mapping of plain values. ``construct`` calls a dataclass, or any class with
annotated keyword parameters, with these values after checking each of them against its
annotation. So a class is its own schema, also one that a user brings along.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")

_PLURAL = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}
_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}


def construct(make: Callable[..., T], values: Mapping[str, Any], where: str) -> T:
    """``make(**values)``, every value converted to the type its parameter is annotated with.

    Args:
        make: a dataclass or another class; parameters without an annotation take anything.
        values: plain values (text, numbers, lists, mappings) by parameter name.
        where: the node's place in the configuration, for messages; empty at the root.

    Raises:
        ValueError: a key is unknown or missing, a value has the wrong type, or ``make`` refuses it.
    """
    parameters = parameters_of(make)
    for key in values:
        if key not in parameters:
            raise ValueError(
                f"{where or 'the configuration'} has no setting {str(key)!r}: it has {', '.join(parameters)}"
                + did_you_mean(str(key), parameters)
            )
    missing = [name for name, (_, required) in parameters.items() if required and name not in values]
    if missing:
        raise ValueError(f"{_join(where, missing[0])} is missing: set it, or take an option that does")
    converted = {key: convert(value, parameters[key][0], _join(where, key)) for key, value in values.items()}
    try:
        return make(**converted)
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error


def parameters_of(make: Callable[..., Any]) -> dict[str, tuple[Any, bool]]:
    """Annotation and "is required" of every parameter that can be set by name."""
    owner = inspect.unwrap(make)
    found = {}
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        annotation = parameter.annotation
        hint = Any if annotation is parameter.empty else _evaluate(annotation, owner.__module__)
        found[name] = (hint, parameter.default is parameter.empty)
    return found


def convert(value: Any, hint: Any, where: str) -> Any:
    """``value`` as an instance of ``hint``; whole numbers count as numbers, lists as tuples.

    Raises:
        ValueError: it is not one, by name of ``where``.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, hint, arguments, where)
    if origin is Literal:
        if value not in arguments:
            choices = tuple(map(str, arguments))
            hint = did_you_mean(str(value), choices)
            raise ValueError(f"{where} must be one of {', '.join(choices)}, got {value!r}{hint}")
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return construct(hint, value, where)
    kind: Any = origin or hint
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        convert(value, Literal[tuple(member.value for member in kind)], where)
        return kind(value)
    if kind in _PLAIN or kind is type(None):
        return _convert_plain(value, kind, where)
    is_mapping = isinstance(kind, type) and issubclass(kind, Mapping)
    if is_mapping and isinstance(value, Mapping):
        key_hint, value_hint = arguments or (Any, Any)
        return {
            convert(key, key_hint, f"{where}'s key"): convert(item, value_hint, _join(where, key))
            for key, item in value.items()
        }
    is_sequence = isinstance(kind, type) and issubclass(kind, Collection) and not is_mapping
    if is_sequence and isinstance(value, list | tuple):
        return _convert_sequence(value, kind, arguments, where)
    if not isinstance(kind, type) or isinstance(value, kind):
        return value  # an annotation that says nothing about plain values
    raise ValueError(f"{where} must be {_describe(hint)}, got {value!r}")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """The end of a message, "; did you mean 'x'?", for a near miss; else nothing."""
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _convert_union(value: Any, hint: Any, arms: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in arms:
        return None
    arms = tuple(arm for arm in arms if arm is not type(None))
    # a whole number is an int where both would do
    for arm in arms:
        if type(value) is arm:
            return value
    errors = []
    for arm in arms:
        try:
            return convert(value, arm, where)
        except ValueError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    raise ValueError(f"{where} must be {_describe(hint)}, got {value!r}")


def _convert_plain(value: Any, kind: type, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and type(value) is str:
        return Path(value)
    if type(value) is kind:
        return value
    raise ValueError(f"{where} must be {_describe(kind)}, got {value!r}")


def _convert_sequence(value: Collection[Any], kind: type, arguments: tuple[Any, ...], where: str) -> Any:
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(value) != len(arguments):
            raise ValueError(f"{where} must be {len(arguments)} values, got {list(value)!r}")
        hints = arguments
    else:
        hints = (arguments[0] if arguments else Any,) * len(value)
    pairs = enumerate(zip(value, hints, strict=True))
    items = [convert(item, hint, f"{where}[{i}]") for i, (item, hint) in pairs]
    if kind is list:
        return items
    return frozenset(items) if issubclass(kind, collections.abc.Set) else tuple(items)


def _describe(hint: Any) -> str:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint is type(None):
        return "null"
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(arm) for arm in arguments)
    kind = origin or hint
    if isinstance(kind, type) and (issubclass(kind, Mapping) or dataclasses.is_dataclass(kind)):
        return "a mapping"
    if isinstance(kind, type) and issubclass(kind, Collection):
        items = _PLURAL.get(arguments[0]) if arguments else None
        return f"a list of {items}" if items else "a list"
    return str(hint)


def _evaluate(annotation: Any, module: str) -> Any:
    """The annotation's value; ``Any`` where its module does not import the name at run time."""
    if not isinstance(annotation, str):
        return annotation
    names = {**vars(typing), **vars(collections.abc), "Path": Path, **vars(sys.modules[module])}
    try:
        return eval(annotation, names)
    except NameError:
        return Any


def _join(where: str, key: Any) -> str:
    return f"{where}.{key}" if where else str(key)
