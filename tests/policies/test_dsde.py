"""DSDE: calibration, the prediction, the cap."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from dspark.policies.dsde import Dsde
from dspark.types import Signal, Verdict


def seen(policy, ctx, state, divergences, accepted):
    """State after a step in which each row's divergences were seen."""
    width = max(1, *(len(row) for row in divergences))
    padded = [[*row, *[math.nan] * (width - len(row))] for row in divergences]
    verdict = Verdict(
        verify_lengths=torch.tensor([len(row) for row in divergences]),
        accepted=torch.tensor(accepted),
        next_token=torch.tensor(accepted),
        divergence=torch.tensor(padded),
    )
    return policy.observe(ctx, verdict, state)


def by_hand(policy: Dsde, steps: list[tuple[list[float], int]]) -> int:
    """Depth of a row from its drafts' divergences and accepted lengths, in plain Python."""
    calibration, longest = [], 0
    for divergences, accepted in steps:
        if len(calibration) < policy.calibration_tokens:
            calibration += divergences
            longest = max(longest, accepted)
    mean, largest = sum(calibration) / len(calibration), max(calibration)
    top = min(policy.depth, max(policy.min_depth, longest * (1 + (mean / largest if largest else 0))))
    history = [value for divergences, _ in steps for value in divergences]

    def variance(values):
        weights = [policy.decay**age for age in range(len(values) - 1, -1, -1)]
        center = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
        return sum(w * (v - center) ** 2 for w, v in zip(weights, values, strict=True)) / sum(weights)

    whole = variance(history[-policy.long_window :])
    ratio = variance(history[-policy.short_window :]) / whole if whole > 1e-9 else 1.0
    last = steps[-1][0]
    x = (math.exp(policy.sensitivity * sum(last) / len(last)) - 1) * ratio
    return math.ceil(policy.min_depth + (1 - x) * (top - policy.min_depth)) if x <= 1 else policy.min_depth


def test_it_asks_for_the_divergence_of_past_steps():
    assert Dsde().needs == {Signal.DIVERGENCE}


def test_a_row_calibrates_from_its_start_doubling_after_whole_drafts(step_context):
    policy = Dsde(start=2, depth=12, calibration_tokens=100)
    ctx, state = step_context(1), policy.init(1)
    found = []
    for accepted in (2, 4, 3, 8, 12):
        depth = int(policy.plan(ctx, state))
        found.append(depth)
        state = seen(policy, ctx, state, [[0.1] * depth], [min(accepted, depth)])
    assert found == [2, 4, 8, 8, 12]


def test_a_prediction_worked_out(step_context):
    """Mean 0.2 and maximum 0.5 of ten tokens, 5 of them accepted at most: SL_max = 5 · 1.4 = 7."""
    policy = Dsde(calibration_tokens=10, short_window=2, long_window=10, decay=1.0, min_depth=2, depth=20)
    first = [0.5, 0.2, 0.1, 0.1, 0.1]  # mean 0.2
    last = [0.0, 0.5, 0.2, 0.2, 0.1]  # mean 0.2
    ctx, state = step_context(1), policy.init(1)
    state = seen(policy, ctx, state, [first], [5])
    state = seen(policy, ctx, state, [last], [1])
    squares = sum((value - 0.2) ** 2 for value in first + last) / 10
    ratio = 0.05**2 / squares  # the last two are 0.15 ± 0.05
    x = (math.exp(2 * 0.2) - 1) * ratio
    assert 0 < x < 1
    assert policy.plan(ctx, state).tolist() == [math.ceil(2 + (1 - x) * (7 - 2))]


@pytest.mark.parametrize("cap", [True, False])
def test_a_loop_over_rows_agrees(cap, step_context):
    policy = Dsde(depth=12, calibration_tokens=12, short_window=4, long_window=12, cap=cap)
    generator = torch.Generator().manual_seed(4)
    ctx, state = step_context(5), policy.init(5)
    histories = [[] for _ in range(5)]
    found = set()
    for step in range(40):
        lengths = policy.plan(ctx, state)
        scale = 0.02 * (1 + torch.arange(5.0))[:, None] * (1 + step % 7)
        values = torch.rand((5, int(lengths.max())), generator=generator) * scale
        rows = [row[:n] for row, n in zip(values.double().tolist(), lengths.tolist(), strict=True)]
        accepted = [int(torch.randint(0, n + 1, (), generator=generator)) for n in lengths.tolist()]
        state = seen(policy, ctx, state, rows, accepted)
        for history, row, count in zip(histories, rows, accepted, strict=True):
            history.append((row, count))
        if step >= 12:  # all rows are calibrated
            expected = [by_hand(policy, history) for history in histories]
            bound = math.ceil(sum(expected) / 5) if cap else 12
            assert policy.plan(ctx, state).tolist() == [min(depth, bound) for depth in expected]
            found |= set(expected)
    assert len(found) >= 4


def test_small_steady_divergence_drafts_to_the_top_and_large_one_to_the_minimum(step_context):
    policy = Dsde(depth=16, calibration_tokens=8, cap=False)
    ctx, state = step_context(2), policy.init(2)
    for _ in range(4):
        state = seen(policy, ctx, state, [[0.0] * 4, [3.0, 0.1, 4.0, 2.0]], [4, 1])
    # row 0: no divergence at all, so SL_max = 4 · (1 + 0); row 1: exp(2 · 2.3) - 1 is far above 1
    assert policy.plan(ctx, state).tolist() == [4, 2]


def test_the_cap_is_the_mean_of_calibrated_rows_rounded_up(step_context):
    policy = Dsde(depth=16, start=12, calibration_tokens=8)
    ctx, state = step_context(3), policy.init(3)
    state = seen(policy, ctx, state, [[0.0] * 9, [0.0] * 8, []], [9, 4, 0])
    # 9 and 4 have the mean 6.5; the third row has seen nothing and starts
    assert policy.plan(ctx, state).tolist() == [7, 4, 12]
    assert replace(policy, cap=False).plan(ctx, state).tolist() == [9, 4, 12]


def test_without_a_draft_nothing_is_learned(step_context):
    policy = Dsde()
    ctx, state = step_context(2), policy.init(2)
    state = seen(policy, ctx, state, [[0.1] * 4, [0.2] * 4], [4, 1])
    nothing = torch.zeros(2, dtype=torch.int64)
    verdict = Verdict(verify_lengths=nothing, accepted=nothing, next_token=nothing)
    again = policy.observe(ctx, verdict, state)
    assert policy.plan(ctx, again).tolist() == policy.plan(ctx, state).tolist()
    assert torch.equal(again.num_judged, state.num_judged)
    assert torch.equal(again.last_mean, state.last_mean)


def test_a_new_row_calibrates_anew(step_context):
    policy = Dsde(calibration_tokens=4, cap=False)
    ctx, state = step_context(2), policy.init(2)
    for _ in range(3):
        state = seen(policy, ctx, state, [[0.0] * 8, [0.0] * 8], [8, 8])
    assert policy.plan(ctx, state).tolist() == [8, 8]
    ctx = replace(ctx, is_new=torch.tensor([True, False]))
    assert policy.plan(ctx, state).tolist() == [4, 8]
    state = seen(policy, ctx, state, [[0.5], [0.0]], [0, 1])
    assert state.num_judged.tolist() == [1, 8]
    assert int(state.window[0].isnan().sum()) == policy.long_window - 1


def test_impossible_tokens_and_rounding_below_0_do_no_harm(step_context):
    policy = Dsde(calibration_tokens=4)
    ctx, state = step_context(2), policy.init(2)
    for _ in range(3):
        state = seen(policy, ctx, state, [[math.inf, 0.1, math.inf], [-1e-7] * 4], [0, 4])
        plan = policy.plan(ctx, state)
        assert bool(((plan >= 2) & (plan <= policy.max_depth)).all())
    assert plan.tolist() == [2, 3]  # the second row's 4 is capped by the mean of 2 and 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_depth": 0}, "1 <= min_depth <= start <= depth, got min_depth=0"),
        ({"start": 30}, "got min_depth=2, start=30, depth=20"),
        ({"calibration_tokens": 0}, "calibration_tokens must be >= 1, got 0"),
        ({"short_window": 1}, "short_window must be >= 2 tokens, got 1"),
        ({"long_window": 5}, "long_window must be >= short_window=10, got 5"),
        ({"decay": 0.0}, r"decay must be in \(0, 1\], got 0.0"),
        ({"sensitivity": 0.0}, "sensitivity must be > 0, got 0.0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Dsde(**settings)
