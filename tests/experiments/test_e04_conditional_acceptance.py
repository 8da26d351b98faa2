"""Leads at position 1, flatness behind it, and what is left out without a drafter."""

from __future__ import annotations

import pytest

from dspark.metrics.trace import read_jsonl
from experiments.drafting.prompts import DOMAINS
from experiments.e04_conditional_acceptance.experiment import (
    DIFFERENCES,
    FLATTER,
    KEPT,
    _claims,
    _same_text,
)
from experiments.reproduce import Status
from tests.experiments.conftest import Shortened

LIKE_THE_PAPER = {
    ("DSpark", "math"): [0.93, 0.93, 0.93],
    ("DSpark", "code"): [0.9, 0.9, 0.9],
    ("DSpark", "chat"): [0.8, 0.8, 0.8],
    ("DFlash", "math"): [0.88, 0.8, 0.66],
    ("DFlash", "code"): [0.8, 0.7, 0.6],
    ("DFlash", "chat"): [0.72, 0.6, 0.54],
    ("EAGLE-3", "math"): [0.81, 0.81, 0.81],
    ("EAGLE-3", "code"): [0.7, 0.7, 0.7],
    ("EAGLE-3", "chat"): [0.53, 0.53, 0.53],
    ("n-gram", "math"): [0.2, 0.5, 0.8],
    ("n-gram", "code"): [0.2, 0.5, 0.8],
    ("n-gram", "chat"): [],  # it found nothing
}


def test_the_papers_numbers_are_reproduced_by_themselves() -> None:
    claims = {claim.what: claim for claim in _claims(LIKE_THE_PAPER)}
    assert len(claims) == len(DIFFERENCES) + len(KEPT) + 1
    assert {claim.status for claim in claims.values()} == {Status.REPRODUCED, Status.SHAPE_ONLY}
    numbered = {what: claim for what, claim in claims.items() if claim.paper is not None}
    assert {
        what.removeprefix("acceptance at position 1, "): claim.paper for what, claim in numbered.items()
    } == {
        "DFlash less EAGLE-3, math": 0.07,
        "DFlash less EAGLE-3, chat": 0.19,
        "DSpark less DFlash, math": 0.05,
        "DFlash, math less chat": 0.16,
        "EAGLE-3, math less chat": 0.28,
    }
    assert all(claim.status is Status.REPRODUCED for claim in numbered.values())
    # DFlash keeps 0.75 in every domain, DSpark all
    assert claims[KEPT["DFlash"].what].ours == pytest.approx(0.75)
    assert claims[FLATTER.what].ours == pytest.approx(1 / 0.75)
    assert claims["acceptance at position 1, DSpark less n-gram, chat"].ours == 0.8


def test_without_other_drafters_their_claims_are_left_out() -> None:
    found = {key: values for key, values in LIKE_THE_PAPER.items() if key[0] in ("DSpark", "n-gram")}
    left = [claim for claim in _claims(found) if claim.status is Status.NOT_RUN]
    assert all("DFlash" in claim.what or "EAGLE-3" in claim.what for claim in left)
    assert len(left) == 3 + 2 + 2 + 1
    assert {claim.note for claim in left} == {
        "no DFlash drafter: train one and give dflash=DIR",
        "no EAGLE-3 drafter: train one and give eagle3=DIR",
    }


def test_a_position_that_no_draft_reaches_has_no_ratio() -> None:
    found = {**LIKE_THE_PAPER, ("DSpark", "chat"): [0.2, 0.0, None]}
    claims = {claim.what: claim for claim in _claims(found)}
    assert claims[KEPT["DSpark"].what].note == "too few drafts reach position 3"
    assert claims[FLATTER.what].status is Status.NOT_RUN


@pytest.mark.parametrize(
    ("temperature", "changed", "ours"), [(0.0, False, 0), (0.0, True, 1), (1.0, True, None)]
)
def test_texts_are_compared_where_they_must_not_differ(temperature, changed, ours) -> None:
    rows = [
        {
            "prompts": domain.name,
            "temperature": temperature,
            "tokens_sha256": f"{domain.name}{changed and domain.name == 'code' and drafter}",
        }
        for domain in DOMAINS
        for drafter in range(2)
    ]
    assert _same_text(rows).ours == ours


def test_the_shortened_run_counts_what_its_steps_say(shortened: Shortened) -> None:
    result, folder = shortened("e04_conditional_acceptance")
    drafted = accepted = 0
    for step in read_jsonl(folder / "DSpark-code" / "steps.jsonl"):
        drafted += sum(count > 0 for count in step["rows"]["verified"])
        accepted += sum(count > 0 for count in step["rows"]["accepted"])
    assert 0 < accepted < drafted, "the stand-in guesses some and not all"
    row = next(row for row in result.tables[0].rows if row[:2] == ("code", "DSpark"))
    assert row[3] == f"{accepted / drafted:.2f}"
    assert {row[1] for row in result.tables[0].rows} == {"DSpark", "DFlash", "EAGLE-3", "n-gram"}
    assert (folder / "conditional.png").stat().st_size > 1000
