"""Statuses follow from the rows of a comparison, and those from the steps."""

from __future__ import annotations

import json

import pytest

from dspark.metrics.trace import read_jsonl
from experiments.e02_more_work.experiment import (
    BATCH_SIZES,
    BYTES,
    DYNAMIC,
    LOADED_TIME,
    LOSSLESS,
    MORE_WORK,
    POLICIES,
    RATE,
    SAME_WORK,
    WORK,
    _claims,
)
from experiments.reproduce import Status
from tests.experiments.conftest import Shortened

# by policy: FLOPs; tokens/s at batch 1, 4 and 16
PLAUSIBLE = {
    "fixed 0": (1.0, (10, 40, 160)),
    "fixed 2": (2.0, (14, 44, 120)),
    "fixed 4": (3.0, (16, 36, 80)),
    "fixed 7": (5.0, (12, 20, 40)),
    DYNAMIC: (2.5, (18, 40, 100)),
}


def _rows() -> dict:
    return {
        (policy, batch): {WORK: work, BYTES: 8 / rates[place], RATE: rates[place]}
        for policy, (work, rates) in PLAUSIBLE.items()
        for place, batch in enumerate(BATCH_SIZES)
    }


def test_ratios_are_to_plain_decoding_at_the_same_batch_size() -> None:
    found = {claim.what: claim.ours for claim in _claims(_rows(), BATCH_SIZES)}
    # depth 4 is the fastest at batch 1
    assert list(found.values()) == pytest.approx(
        [3.0, 10 / 16, 10 / 16, 5.0, 160 / 40, 1.0, 2.5 / 5.0, max(12 / 18, 20 / 40, 40 / 100)]
    )
    assert all(claim.status is Status.SHAPE_ONLY for claim in _claims(_rows(), BATCH_SIZES))


@pytest.mark.parametrize(
    ("key", "metric", "value", "broken"),
    [
        (("fixed 0", 16), RATE, 39, LOADED_TIME.what),
        (("fixed 4", 1), WORK, 0.9, MORE_WORK.what),
        (("fixed 7", 16), WORK, 5.2, SAME_WORK.what),
    ],
)
def test_what_does_not_hold_is_not_reproduced(key, metric, value, broken) -> None:
    rows = _rows()
    rows[key][metric] = value
    wrong = [claim.what for claim in _claims(rows, BATCH_SIZES) if claim.status is Status.NOT_REPRODUCED]
    assert wrong == [broken]


def test_the_shortened_run_counts_what_its_steps_say(shortened: Shortened) -> None:
    result, folder = shortened("e02_more_work")
    rows = json.loads((folder / "compare" / "summary.json").read_text())["rows"]
    assert {row["policy"] for row in rows} == {*POLICIES, DYNAMIC}
    tokens = dict.fromkeys(((policy, batch) for policy in ("fixed 0", "fixed 7") for batch in (1, 2)), 0)
    for step in read_jsonl(folder / "compare" / "steps.jsonl"):
        policy, batch, _ = step["cell"].split("/")
        place = policy, int(batch.removeprefix("batch "))
        if place in tokens:
            tokens[place] += step["num_pass_tokens"]
    claims = {claim.what: claim for claim in result.claims}
    # the output is the same, so the ratio of FLOPs an output token is that of tokens in the passes
    more = {batch: tokens["fixed 7", batch] / tokens["fixed 0", batch] for batch in (1, 2)}
    assert claims[
        "target FLOPs an output token, depth 7 over plain decoding, batch 16"
    ].ours == pytest.approx(more[2])
    assert claims[SAME_WORK.what].ours == pytest.approx(more[2] / more[1])
    assert claims[SAME_WORK.what].status is Status.SHAPE_ONLY
    assert claims[LOSSLESS.what].ours == 0
    assert result.tables[0].rows[0][:2] == ("1", "fixed 0")
    assert (folder / "work_and_time.png").stat().st_size > 1000
