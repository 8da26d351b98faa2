"""What a verdict tells about positions, and what an estimator says when it is asked too early."""

from __future__ import annotations

import pytest
import torch

from dspark.policies.estimators import build_estimator, observed, survival
from dspark.policies.estimators.base import read_signal
from dspark.types import Knowledge, Signal, Verdict


def verdict(verify_lengths: list[int], accepted: list[int]) -> Verdict:
    lengths, counts = torch.tensor(verify_lengths), torch.tensor(accepted)
    return Verdict(verify_lengths=lengths, accepted=counts, next_token=counts)


def test_a_position_is_observed_iff_all_before_it_were_accepted():
    # all three accepted; rejected at 2 of 3; rejected at 1; nothing verified; one of one
    seen = observed(verdict([3, 3, 3, 0, 1], [3, 1, 0, 0, 1]), 4)
    assert seen.reached.int().tolist() == [
        [1, 1, 1, 0],
        [1, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
    ]
    assert seen.accepted.sum(dim=1).tolist() == [3, 1, 0, 0, 1]
    assert not bool((seen.accepted & ~seen.reached).any())


def test_a_verdict_of_no_rows_and_a_width_of_zero_are_observed_as_nothing():
    assert observed(verdict([], []), 3).reached.shape == (0, 3)
    assert observed(verdict([2], [1]), 0).reached.shape == (1, 0)


def test_survival_is_the_running_product():
    conditional = torch.tensor([[0.8, 0.5, 0.25], [1.0, 0.0, 0.9]], dtype=torch.float64)
    torch.testing.assert_close(
        survival(conditional),
        torch.tensor([[0.8, 0.4, 0.1], [1.0, 0.0, 0.0]], dtype=torch.float64),
        rtol=1e-15,
        atol=0,
    )


@pytest.mark.parametrize(
    ("name", "knowledge"),
    [
        ("constant", Knowledge.PAST),
        ("request_ema", Knowledge.PAST),
        ("position_window", Knowledge.PAST),
        ("top1", Knowledge.PRE_TOKEN),
        ("entropy_bound", Knowledge.PRE_TOKEN),
        ("margin_logistic", Knowledge.PRE_TOKEN),
        ("confidence", Knowledge.PRE_TOKEN),
        ("token_probability", Knowledge.SAMPLED_TOKEN),
    ],
)
def test_knowledge_is_what_the_signals_know(name, knowledge):
    assert build_estimator(name).knowledge is knowledge
    assert build_estimator(name, temperatures=[2.0]).knowledge is knowledge


def test_asking_for_a_signal_before_drafting_is_refused(step_context):
    with pytest.raises(
        ValueError, match=r"^estimator top1 reads the signal top1_probability .* before anything"
    ):
        build_estimator("top1").conditional(step_context(2), None, 3, None)


def test_a_signal_that_is_not_given_is_refused_by_name():
    given = {Signal.MARGIN: torch.zeros(1, 1)}
    with pytest.raises(ValueError, match=r"reads the signal entropy, which is not given; given: margin$"):
        read_signal(given, Signal.ENTROPY, 1, "entropy_bound")
