"""Each metric against a sum done by hand on the four steps of the fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dspark.metrics import definitions
from dspark.metrics.definitions import Totals, step_totals
from dspark.metrics.tally import Tally
from tests.metrics.conftest import make_completion, make_row, make_step

if TYPE_CHECKING:
    from dspark.types import StepRecord


@pytest.fixture
def totals(steps: list[StepRecord]) -> Totals:
    tally = Tally()
    for step in steps:
        tally.add(step)
    return tally.totals


def test_counters(totals: Totals) -> None:
    assert totals.num_steps == totals.num_target_passes == 4
    assert totals.num_row_steps == 5
    assert totals.num_draft_row_steps == 4
    assert totals.drafted == 4 + 4 + 2 + 0 + 3
    assert totals.verified == totals.drafted
    assert totals.accepted == 2 + 4 + 0 + 0 + 1  # b's accepted token was the one emitted
    assert totals.emitted == 3 + 5 + 1 + 1 + 1
    assert totals.num_prefill_tokens == 50
    assert totals.num_pass_tokens == 20 + (30 + 5) + (5 + 3) + (1 + 4)
    assert totals.num_context_tokens == 0 + 10 + 20 + 20
    assert totals.wall_s == 3.75
    assert totals.time_split_s == {"target": 3.75}


def test_acceptance_length_counts_row_steps_with_a_draft_only(totals: Totals) -> None:
    assert definitions.acceptance_length(totals) == (3 + 5 + 1 + 1) / 4


def test_the_mean_over_requests_is_another_number(steps: list[StepRecord]) -> None:
    tally = Tally()
    for step in steps:
        tally.add(step)
    # a: (3 + 5) / 2 over its two drafting row-steps; b: (1 + 1) / 2
    assert definitions.acceptance_length_per_request_mean(tally.per_request) == (4.0 + 1.0) / 2
    assert definitions.acceptance_length_per_request_mean([(7, 2), (0, 0)]) == 3.5


def test_acceptance_rate_is_accepted_over_verified(totals: Totals) -> None:
    assert definitions.acceptance_rate(totals) == 7 / 13


def test_survival_and_conditional_differ(totals: Totals) -> None:
    # verified lengths 4, 4, 2, 0, 3 with 2, 4, 0, 0, 1 accepted
    assert definitions.survival_at(totals) == (3 / 4, 2 / 4, 1 / 3, 1 / 2)
    # k=2 counts rows whose first token was accepted: 4, 4 and 3 deep; k=3 the two with two accepted
    assert definitions.conditional_at(totals) == (3 / 4, 2 / 3, 1 / 2, 1 / 1)


def test_accepted_tokens_that_were_cut_off_do_not_count_as_accepted() -> None:
    cut = step_totals(make_step(0, [make_row("a", drafted=4, accepted=4, emitted=2)], wall_s=1.0))
    assert (cut.accepted, cut.emitted, cut.verified) == (2, 2, 4)
    assert definitions.acceptance_rate(cut) == 0.5
    assert definitions.survival_at(cut) == (1.0, 1.0, 1.0, 1.0)  # the drafter was right all along


def test_decode_speed_leaves_out_steps_with_prefill_on_both_sides(totals: Totals) -> None:
    assert definitions.decode_tokens_per_s(totals) == (5 + 1 + 1 + 1) / 0.75


def test_end_to_end_speed_is_over_all_steps(totals: Totals) -> None:
    assert definitions.output_tokens_per_s(13, totals.wall_s) == 13 / 3.75


def test_waste_and_pass_width(totals: Totals) -> None:
    assert definitions.wasted_tokens(totals) == 13 - 7
    assert definitions.tokens_per_pass(totals) == 68 / 4


def test_work_and_traffic_per_output_token(totals: Totals) -> None:
    assert definitions.model_flops_per_output_token(totals, 100, 10) == 2 * 100 * 68 / 10
    moved = 4 * 400 + 8 * 50  # four passes over the weights, 50 cached tokens of 8 bytes
    assert definitions.bytes_per_output_token(totals, 400, 8, 10) == moved / 10


def test_latencies() -> None:
    first = make_completion("a", 5, ttft_s=0.5, latency_s=2.5)
    single = make_completion("b", 1, ttft_s=1.5, latency_s=1.5)
    assert definitions.ttft_mean_s([first, single]) == 1.0
    assert definitions.tpot_s(first) == 2.0 / 4
    assert definitions.tpot_s(single) is None
    assert definitions.tpot_mean_s([first, single]) == 0.5


def test_goodput_counts_the_tokens_of_requests_within_both_bounds() -> None:
    done = [
        make_completion("fast", 5, ttft_s=0.1, latency_s=0.5),  # 0.1 s a token
        make_completion("late", 7, ttft_s=2.0, latency_s=2.6),
        make_completion("slow", 9, ttft_s=0.1, latency_s=8.1),  # 1 s a token
        make_completion("single", 1, ttft_s=0.1, latency_s=0.1),
    ]
    assert definitions.goodput_tokens_per_s(done, 2.0, max_ttft_s=1.0, max_tpot_s=0.5) == (5 + 1) / 2.0


def test_an_empty_denominator_gives_none() -> None:
    plain = step_totals(make_step(0, [make_row("a", drafted=0, accepted=0)], wall_s=1.0))
    assert definitions.acceptance_length(plain) is None
    assert definitions.acceptance_rate(plain) is None
    assert definitions.survival_at(plain) == definitions.conditional_at(plain) == ()
    assert definitions.decode_tokens_per_s(step_totals(make_step(0, [], wall_s=1.0, prefill=4))) is None
    assert definitions.tokens_per_pass(Totals()) is None
    assert definitions.ttft_mean_s([]) is definitions.tpot_mean_s([]) is None


def test_totals_add_up_in_any_grouping(steps: list[StepRecord], totals: Totals) -> None:
    parts = [step_totals(step) for step in steps]
    assert (parts[0] + parts[1]) + (parts[2] + parts[3]) == totals
    assert Totals() + parts[1] == parts[1]
