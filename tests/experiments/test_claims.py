"""Statuses follow from numbers, and a claim that claims nothing is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from experiments.reproduce import Claim, Shape, Status
from experiments.reproduce.claims import counts, overall

GOOD, SHAPE, BAD, NONE = Status


@pytest.mark.parametrize(
    ("paper", "tolerance", "shape", "ours", "status"),
    [
        (2.0, 0.5, None, 2.5, GOOD),  # the tolerance belongs to it
        (2.0, 0.5, None, 2.51, BAD),
        (2.0, 0.5, None, 1.49, BAD),
        (0.7, 0.0, None, Fraction(7, 10), GOOD),
        (0.7, 0.0, None, Fraction(71, 100), BAD),
        (2.0, 0.5, Shape(above=1.0), 9.0, SHAPE),
        (2.0, 0.5, Shape(above=1.0), 0.9, BAD),
        (2.0, 0.5, Shape(above=2.2), 2.1, GOOD),  # equal goes first
        (None, 0.0, Shape(above=1.0), 1.1, SHAPE),
        (None, 0.0, Shape(above=1.0), 1.0, BAD),  # ends are outside
        (None, 0.0, Shape(below=1.0), 1.0, BAD),
        (None, 0.0, Shape(above=0.0, below=1.0), 0.5, SHAPE),
        (None, 0.0, Shape(above=0.0, below=1.0), 1.5, BAD),
    ],
)
def test_a_status_follows_from_the_numbers(paper, tolerance, shape, ours, status) -> None:
    claim = Claim(what="x", paper=paper, tolerance=tolerance, shape=shape)
    assert claim.status is NONE
    assert claim.measured(ours).status is status
    assert claim.measured(ours).left_out("broken").status is NONE


def test_the_error_is_ours_less_the_papers() -> None:
    assert Claim(what="x", paper=2.0).measured(1.5).error == -0.5
    assert Claim(what="x", shape=Shape(above=0)).measured(1.5).error is None
    assert Claim(what="x", paper=2.0).error is None


def test_a_note_is_kept_until_there_is_another() -> None:
    claim = Claim(what="x", paper=2.0, note="as printed")
    assert claim.measured(1).note == "as printed"
    assert claim.measured(1, "by hand").note == "by hand"


def _claims(*statuses: Status) -> list[Claim]:
    """Claims with a published number; ``SHAPE`` has one too."""
    ours = {GOOD: 2.0, SHAPE: 3.0, BAD: 0.0}
    claim = Claim(what="x", paper=2.0, shape=Shape(above=1.0))
    return [claim.left_out("no") if each is NONE else claim.measured(ours[each]) for each in statuses]


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ([], NONE),
        (_claims(NONE, NONE), NONE),
        (_claims(GOOD, NONE), GOOD),
        (_claims(GOOD, SHAPE, NONE), SHAPE),
        (_claims(GOOD, SHAPE, BAD), BAD),
        ([Claim(what="y", shape=Shape(above=0)).measured(1)], SHAPE),
        ([*_claims(GOOD), Claim(what="y", shape=Shape(above=0)).measured(1)], GOOD),
        ([*_claims(GOOD), Claim(what="y", shape=Shape(above=0)).measured(-1)], BAD),
    ],
)
def test_all_together(claims: list[Claim], status: Status) -> None:
    assert overall(claims) is status


def test_counts_have_no_zeros() -> None:
    assert counts(_claims(BAD, GOOD, GOOD)) == {GOOD: 2, BAD: 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "claims nothing"),
        ({"paper": 1.0, "tolerance": -0.1}, "must be >= 0"),
        ({"shape": Shape(above=0), "tolerance": 0.1}, "go with a number of the paper's"),
        ({"paper": float("nan")}, "must be a finite number"),
        ({"paper": 1.0, "ours": float("inf")}, "must be a finite number"),
    ],
)
def test_what_is_no_claim(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Claim(what="x", **fields)


@pytest.mark.parametrize("fields", [{}, {"above": 1.0, "below": 1.0}])
def test_what_is_no_shape(fields: dict) -> None:
    with pytest.raises(ValueError, match="a shape needs"):
        Shape(**fields)


def test_a_shape_in_words() -> None:
    shapes = (Shape(above=1), Shape(below=0.5), Shape(above=0, below=1))
    assert [str(shape) for shape in shapes] == ["> 1", "< 0.5", "> 0 and < 1"]
