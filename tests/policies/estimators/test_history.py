"""Estimators of the past: constant, request_ema and position_window, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dspark.policies.estimators import Constant, PositionWindow, RequestEma
from dspark.types import Verdict


def verdict(verify_lengths, accepted) -> Verdict:
    lengths, counts = torch.as_tensor(verify_lengths), torch.as_tensor(accepted)
    return Verdict(verify_lengths=lengths, accepted=counts, next_token=counts)


def truncated_geometric(rate: float, depth: int, num_rows: int, generator: torch.Generator) -> torch.Tensor:
    """Accepted counts of drafts of ``depth`` tokens, each accepted with ``rate``."""
    return (torch.rand(num_rows, depth, generator=generator) < rate).long().cumprod(dim=1).sum(dim=1)


def test_constant_is_alpha_everywhere(step_context):
    assert Constant(alpha=0.25).conditional(step_context(2), None, 3, None).tolist() == [[0.25] * 3] * 2


def test_request_ema_discounts_counts_and_divides_them(step_context):
    ctx = step_context(2)
    ema = RequestEma(decay=0.5, initial=0.6, prior=2.0)
    state = ema.init(4, 8)
    assert ema.conditional(ctx, None, 2, state).tolist() == [[0.6, 0.6], [0.6, 0.6]]
    # row 0: 3 of 3 reached and accepted; row 1: 1 accepted, 2 reached of 4 verified
    state = ema.observe(ctx, verdict([3, 4], [3, 1]), state)
    expected = [(0.5 * 1.2 + 3) / (0.5 * 2 + 3), (0.5 * 1.2 + 1) / (0.5 * 2 + 2)]
    assert ema.conditional(ctx, None, 1, state).squeeze(1).tolist() == pytest.approx(expected, rel=1e-15)
    assert RequestEma().observe(ctx, verdict([1, 0], [0, 0]), RequestEma().init(2, 1)).reached.tolist() == [
        1.85,
        1,
    ]
    # row 0 idles and keeps its counts; row 1 is rejected at once
    state = ema.observe(ctx, verdict([0, 2], [0, 0]), state)
    expected = [expected[0], (0.5 * (0.5 * 1.2 + 1)) / (0.5 * 3 + 1)]
    assert ema.conditional(ctx, None, 1, state).squeeze(1).tolist() == pytest.approx(expected, rel=1e-15)
    # the slots that had no row are as they were
    assert ema.conditional(step_context(2, slots=torch.tensor([2, 3])), None, 1, state).tolist() == [
        [0.6],
        [0.6],
    ]


def test_request_ema_forgets_the_former_occupant_of_a_slot(step_context):
    ctx = step_context(2)
    ema = RequestEma(decay=0.5, initial=0.6, prior=2.0)
    state = ema.observe(ctx, verdict([3, 3], [0, 0]), ema.init(2, 8))
    newcomer = replace(ctx, is_new=torch.tensor([True, False]))
    before = ema.conditional(newcomer, None, 1, state)
    assert before[0].item() == pytest.approx(0.6)
    assert before[1].item() == pytest.approx(0.5 * 1.2 / (0.5 * 2 + 1))
    state = ema.observe(newcomer, verdict([2, 0], [2, 0]), state)
    after = ema.conditional(ctx, None, 1, state)
    assert after[0].item() == pytest.approx((0.5 * 1.2 + 2) / (0.5 * 2 + 2))
    assert after[1].item() == pytest.approx(before[1].item())


def test_a_ratio_of_averages_finds_the_rate_where_an_average_of_ratios_does_not(step_context):
    """The number of the docstring: at 0.7 and depth 4 the mean of the steps' rates is 0.52."""
    weights = [0.3 * 0.7**a for a in range(4)] + [0.7**4]
    mean_rate = sum(w * a / min(a + 1, 4) for a, w in enumerate(weights))
    assert round(mean_rate, 2) == 0.52
    generator = torch.Generator().manual_seed(0)
    ctx = step_context(400)
    ema = RequestEma(decay=0.95)
    state = ema.init(400, 4)
    for _ in range(150):
        state = ema.observe(
            ctx, verdict(torch.full((400,), 4), truncated_geometric(0.7, 4, 400, generator)), state
        )
    estimate = ema.conditional(ctx, None, 1, state).mean().item()
    # about 20 steps of 2.5 reached tokens a row: standard error of a row 0.065, of the mean 0.003
    assert abs(estimate - 0.7) < 0.015


def test_position_window_pools_rows_and_steps(step_context):
    ctx = step_context(4)
    window = PositionWindow(window=3, initial=0.7)
    state = window.init(4, 3)
    state = window.observe(ctx, verdict([3, 3, 3, 3], [3, 1, 0, 1]), state)
    state = window.observe(ctx, verdict([3, 3, 0, 3], [2, 3, 0, 0]), state)
    # reached: position 1 by 4 + 3 rows, 2 by 3 + 2, 3 by 1 + 2; accepted 3 + 2, 1 + 2, 1 + 1
    answer = window.conditional(ctx, None, 3, state)
    assert answer[0].tolist() == pytest.approx([5 / 7, 3 / 5, 2 / 3], rel=1e-14)
    assert torch.equal(answer, answer[:1].expand(4, -1))


def test_position_window_looks_back_over_its_steps_and_skips_idle_ones(step_context):
    ctx = step_context(1)
    window = PositionWindow(window=2, initial=0.7)
    state = window.init(1, 1)
    rates = []
    for lengths, accepted in [([1], [1]), ([0], [0]), ([1], [0]), ([1], [0]), ([1], [1])]:
        state = window.observe(ctx, verdict(lengths, accepted), state)
        rates.append(window.conditional(ctx, None, 1, state).item())
    assert rates == [1.0, 1.0, 0.5, 0.0, 0.5]


def test_equal_depths_make_the_product_the_share_of_rows_that_accepted_so_far(step_context):
    """Then the window is SGLang's: unconditional rates over the last batches."""
    generator = torch.Generator().manual_seed(1)
    ctx = step_context(32)
    window = PositionWindow(window=5)
    state = window.init(32, 4)
    counts = [truncated_geometric(0.8, 4, 32, generator) for _ in range(9)]
    for accepted in counts:
        state = window.observe(ctx, verdict(torch.full((32,), 4), accepted), state)
    last = torch.cat(counts[-5:])
    shares = [(last >= k).double().mean().item() for k in range(1, 5)]
    product = window.conditional(ctx, None, 4, state)[0].cumprod(0)
    assert product.tolist() == pytest.approx(shares, rel=1e-12)


@pytest.mark.parametrize(
    ("accepted", "depth", "expected_survival"),
    [
        # survivals .75 .5 .25 known; ratio (.25/.75)^(1/2) from there
        ([0, 1, 2, 3], 3, [0.75, 0.5, 0.25, 0.25 * 3**-0.5, 0.25 / 3]),
        # one known position: survival does not fall behind it
        ([0, 1, 1, 1], 1, [0.75] * 5),
        # nobody gets past the second
        ([0, 1, 1, 1], 2, [0.75, 0.0, 0.0, 0.0, 0.0]),
        ([0, 0, 0, 0], 2, [0.0] * 5),
    ],
)
def test_positions_that_were_not_reached_continue_geometrically(
    accepted, depth, expected_survival, step_context
):
    ctx = step_context(4)
    window = PositionWindow()
    state = window.observe(ctx, verdict([depth] * 4, accepted), window.init(4, 5))
    product = window.conditional(ctx, None, 5, state)[0].cumprod(0)
    assert product.tolist() == pytest.approx(expected_survival, rel=1e-12)


def test_before_anything_is_verified_every_position_has_the_initial_rate(step_context):
    window = PositionWindow(initial=0.4)
    assert window.conditional(step_context(1), None, 3, window.init(1, 3)).tolist() == [[0.4] * 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(alpha=1.5), r"^alpha must be in \[0, 1\], got 1.5$"),
        (lambda: RequestEma(decay=1.0), r"^decay must be in \[0, 1\), got 1.0$"),
        (lambda: RequestEma(initial=float("nan")), r"^initial must be in \[0, 1\], got nan$"),
        (lambda: RequestEma(prior=0.0), r"^prior must be > 0 tokens, got 0.0$"),
        (lambda: PositionWindow(window=0), r"^window must be >= 1 steps, got 0$"),
        (lambda: PositionWindow(initial=-0.1), r"^initial must be in \[0, 1\], got -0.1$"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
