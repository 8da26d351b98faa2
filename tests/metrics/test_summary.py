"""Summary rows: their fields, the hash of the tokens, medians over repeats."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from dspark.metrics.summary import measured, over_repeats, tokens_sha256
from dspark.metrics.tally import Tally
from tests.metrics.conftest import make_completion, make_row, make_step

if TYPE_CHECKING:
    from dspark.types import StepRecord

SIZES = {"num_parameters": 10, "weight_bytes": 40, "cache_bytes_per_token": 2}


def _tally(steps: list[StepRecord]) -> Tally:
    tally = Tally()
    for step in steps:
        tally.add(step)
    return tally


def test_the_hash_is_that_of_the_compact_json() -> None:
    assert tokens_sha256([(5, 7), (9,)]) == hashlib.sha256(b"[[5,7],[9]]").hexdigest()


def test_the_hash_sees_order_and_boundaries() -> None:
    hashes = {tokens_sha256(ids) for ids in ([(5, 7), (9,)], [(5,), (7, 9)], [(9,), (5, 7)], [(57,), (9,)])}
    assert len(hashes) == 4


def test_a_measured_row_has_the_fields_of_the_schema(steps: list[StepRecord]) -> None:
    done = [make_completion("a", 10), make_completion("b", 3)]
    row = measured(_tally(steps), done, **SIZES)
    schema = (
        "num_requests output_tokens wall_s tokens_per_s decode_tokens_per_s acceptance_length "
        "acceptance_rate drafted_tokens verified_tokens accepted_tokens target_passes time_split_s "
        "tokens_sha256"
    )
    assert set(schema.split()) <= set(row)
    assert (row["num_requests"], row["output_tokens"]) == (2, 13)
    assert row["tokens_per_s"] == 13 / 3.75
    assert row["acceptance_rate"] == row["accepted_tokens"] / row["verified_tokens"] == 7 / 13
    assert row["tokens_sha256"] == tokens_sha256([done[0].token_ids, done[1].token_ids])
    assert row["finish_reasons"] == {"length": 2}
    assert row["goodput_tokens_per_s"] is None
    assert (
        measured(_tally(steps), done, **SIZES, latency_bound_s=(1.0, 1.0))["goodput_tokens_per_s"]
        == 13 / 3.75
    )


def test_a_run_without_drafts_has_nulls_and_is_valid_json() -> None:
    plain = [make_step(0, [make_row("a", drafted=0, accepted=0)], wall_s=1.0)]
    row = measured(_tally(plain), [make_completion("a", 2)], **SIZES)
    assert row["acceptance_length"] is row["acceptance_rate"] is None
    json.dumps(row, allow_nan=False)


def _row(wall_s: float, speed: float, **more: Any) -> dict[str, Any]:
    row = {"wall_s": wall_s, "decode_tokens_per_s": speed, "tokens_per_s": speed / 2, "tokens_sha256": "x"}
    return {**row, **more}


def test_the_median_repeat_gives_all_the_numbers() -> None:
    repeats = [_row(3.0, 10.0, name="slow"), _row(1.0, 30.0, name="fast"), _row(2.0, 20.0, name="middle")]
    row = over_repeats(repeats, None)
    assert (row["name"], row["decode_tokens_per_s"], row["num_repeats"]) == ("middle", 20.0, 3)
    assert [each["wall_s"] for each in row["repeats"]] == [3.0, 1.0, 2.0]
    assert row["ratio_to_plain"] is None
    assert over_repeats(repeats[:2], None)["name"] == "fast"  # the lower of two


def test_ratios_are_taken_within_a_repeat() -> None:
    # the machine halves its speed in the second repeat: both sides see it, and the ratio stays
    policy = [_row(1.0, 30.0), _row(2.0, 15.0), _row(1.0, 36.0)]
    plain = [_row(1.5, 20.0), _row(3.0, 10.0), _row(1.5, 20.0)]
    row = over_repeats(policy, plain)
    assert row["ratio_to_plain"] == 1.5
    assert row["ratio_to_plain_end_to_end"] == 1.5
    assert over_repeats(plain, plain)["ratio_to_plain"] == 1.0
