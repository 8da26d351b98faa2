"""Plain values become typed ones, or one line says which value is wrong and what it should be."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from dspark.config.typed import construct, convert, parameters_of


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Outer:
    depth: int
    rate: float = 0.5
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError(f"depth must be >= 0, got {self.depth}")


class Plain:
    """A class without dataclass, as drafters are."""

    def __init__(self, min_n: int = 1, *, rates: Sequence[float] = (0.5,), anything=None) -> None:
        self.min_n, self.rates, self.anything = min_n, rates, anything


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, int, 3),
        (3, float, 3.0),
        (True, bool, True),
        ("x", str, "x"),
        ("a/b", Path, Path("a/b")),
        (None, int | None, None),
        (3, int | None, 3),
        (3, float | int, 3),
        ("fast", Literal["fast", "exact"], "fast"),
        ("red", Colour, Colour.RED),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, "x"], tuple[int, str], (1, "x")),
        ([[1, 2]], list[list[int]], [[1, 2]]),
        ([1, 1], frozenset[int], frozenset({1})),
        ([1, 2.5], Sequence[float], (1.0, 2.5)),
        ({4: 1}, dict[int, int], {4: 1}),
        ({"a": 1}, Mapping[str, float], {"a": 1.0}),
        ({"size": 3}, Inner, Inner(size=3)),
        ({"size": 3}, Inner | None, Inner(size=3)),
        ("whatever", Any, "whatever"),
    ],
)
def test_values_of_the_right_type(value: Any, hint: Any, expected: Any) -> None:
    result = convert(value, hint, "x")
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        ("3", int, "x must be a whole number, got '3'"),
        (3.0, int, "x must be a whole number, got 3.0"),
        (True, int, "x must be a whole number, got True"),
        (True, float, "x must be a number, got True"),
        (1, bool, "x must be true or false, got 1"),
        (3, str, "x must be a text, got 3"),
        ("a", int | None, "x must be a whole number, got 'a'"),
        ("a", int | float, "x must be a whole number or a number, got 'a'"),
        ("fats", Literal["fast", "exact"], "x must be one of fast, exact, got 'fats'; did you mean 'fast'?"),
        ("green", Colour, "x must be one of red, blue, got 'green'"),
        ("12", tuple[int, ...], "x must be a list of whole numbers, got '12'"),
        ([1], tuple[int, str], r"x must be 2 values, got [1]"),
        ([1, "a"], list[int], "x[1] must be a whole number, got 'a'"),
        ({"a": 1}, dict[int, int], "x's key must be a whole number, got 'a'"),
        ({4: "a"}, dict[int, int], "x.4 must be a whole number, got 'a'"),
        ([1], dict[int, int], "x must be a mapping, got [1]"),
        ({"size": "a"}, Inner, "x.size must be a whole number, got 'a'"),
        (3, Inner, "x must be a mapping, got 3"),
    ],
)
def test_values_of_a_wrong_type_are_named(value: Any, hint: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        convert(value, hint, "x")


def test_construct_builds_nested_dataclasses() -> None:
    assert construct(Outer, {"depth": 2, "rate": 1, "inner": {"size": 5}}, "o") == Outer(
        depth=2, rate=1.0, inner=Inner(size=5)
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"depth": 1, "inner": {"siez": 2}},
            "o.inner has no setting 'siez': it has size; did you mean 'size'?",
        ),
        ({"rate": 1.0}, "o.depth is missing: set it, or take an option that does"),
        ({"depth": -1}, "o: depth must be >= 0, got -1"),
    ],
)
def test_construct_refuses_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        construct(Outer, values, "o")


def test_construct_takes_plain_classes_and_parameters_without_annotation() -> None:
    built = construct(Plain, {"min_n": 2, "rates": [1], "anything": {"a": [1]}}, "p")
    assert (built.min_n, built.rates, built.anything) == (2, (1.0,), {"a": [1]})
    assert list(parameters_of(Plain)) == ["min_n", "rates", "anything"]


def test_annotations_that_are_imported_for_type_checkers_only_are_resolved() -> None:
    from dspark.drafters import SyntheticDrafter  # annotates with a Sequence it does not import

    built = construct(SyntheticDrafter, {"vocab_size": 8, "acceptance": [1]}, "drafter")
    assert built.acceptance == (1.0,)
    with pytest.raises(ValueError, match=r"drafter.acceptance\[0\] must be a number, got 'x'"):
        construct(SyntheticDrafter, {"vocab_size": 8, "acceptance": ["x"]}, "drafter")
