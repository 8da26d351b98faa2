"""The threshold that Draft & Verify and AdaEDL steer, step by step against its definition."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dspark.policies.adaptive_threshold import ThresholdRule
from dspark.types import Verdict


def rule(**changes: float) -> ThresholdRule:
    settings = {"initial": 0.8, "target": 0.9, "increment": 0.01, "match_decay": 0.5, "threshold_decay": 0.9}
    return ThresholdRule(**{**settings, **changes})


def verdict(verified: list[int], accepted: list[int]) -> Verdict:
    counts = torch.tensor(accepted)
    return Verdict(verify_lengths=torch.tensor(verified), accepted=counts, next_token=counts)


class Reference:
    """One row, as the rule is written down."""

    def __init__(self, threshold: float, depth: int) -> None:
        self.threshold, self.depth, self.matched = threshold, depth, 0.0

    def update(self, verified: int, accepted: int) -> None:
        if verified == 0:
            return
        self.matched = 0.5 * self.matched + 0.5 * accepted / verified
        if self.matched < 0.9:
            wanted = self.threshold + 0.01
        elif verified == self.depth:
            wanted = self.threshold
        else:
            wanted = self.threshold - 0.01
        self.threshold = 0.9 * self.threshold + 0.1 * wanted


def test_three_directions_by_hand(step_context):
    """A rejection raises it by a tenth of the increment; enough acceptance lowers it, but not at depth."""
    ctx = step_context(3)
    steer = rule(match_decay=0.0)  # the matching rate is the last step's
    state = steer.updated(ctx, verdict([4, 4, 8], [2, 4, 8]), steer.init(3), depth=8)
    assert state.threshold.tolist() == pytest.approx([0.801, 0.799, 0.8], rel=1e-12)
    assert state.matched.tolist() == [0.5, 1.0, 1.0]


def test_the_matching_rate_starts_at_zero(step_context):
    """Four whole acceptances: m = .5, .75, .875 are below .9, .9375 is not."""
    ctx = step_context(1)
    steer, thresholds = rule(), []
    state = steer.init(1)
    for _ in range(4):
        state = steer.updated(ctx, verdict([3], [3]), state, depth=8)
        thresholds.append(state.threshold.item())
    assert thresholds == pytest.approx([0.801, 0.802, 0.803, 0.802], rel=1e-12)


def test_rows_follow_the_reference_while_the_batch_changes(step_context):
    generator = torch.Generator().manual_seed(0)
    steer, depth = rule(), 6
    state = steer.init(5)
    rows = [Reference(0.8, depth) for _ in range(5)]
    for step in range(300):
        num_rows = int(torch.randint(0, 6, (), generator=generator))
        slots = torch.randperm(5, generator=generator)[:num_rows]
        ctx = step_context(num_rows, num_slots=5, slots=slots)
        verified = torch.randint(0, depth + 1, (num_rows,), generator=generator)
        accepted = torch.minimum(verified, torch.randint(3, depth + 1, (num_rows,), generator=generator))
        state = steer.updated(ctx, verdict(verified.tolist(), accepted.tolist()), state, depth)
        for slot, v, a in zip(slots.tolist(), verified.tolist(), accepted.tolist(), strict=True):
            rows[slot].update(v, a)
        expected = [row.threshold for row in rows]
        assert state.threshold.tolist() == pytest.approx(expected, rel=1e-9), step
    assert len({round(row.threshold, 6) for row in rows}) > 1  # their histories differ


def test_a_new_request_starts_from_the_initial_values(step_context):
    ctx = step_context(2)
    steer = rule()
    state = steer.init(2)
    for _ in range(20):
        state = steer.updated(ctx, verdict([4, 4], [0, 0]), state, depth=8)
    newcomer = replace(ctx, is_new=torch.tensor([True, False]))
    assert steer.of_rows(newcomer, state).tolist() == pytest.approx([0.8, 0.82])
    state = steer.updated(newcomer, verdict([4, 0], [4, 0]), state, depth=8)
    assert state.threshold.tolist() == pytest.approx([0.801, 0.82])
    assert state.matched[0].item() == 0.5


def test_it_stays_a_probability_and_comes_back_at_once(step_context):
    ctx = step_context(1)
    steer = rule(initial=1.0, match_decay=0.0)
    state = steer.init(1)
    for _ in range(50):
        state = steer.updated(ctx, verdict([4], [0]), state, depth=8)
    assert state.threshold.item() == 1.0
    assert steer.updated(ctx, verdict([4], [4]), state, depth=8).threshold.item() == pytest.approx(0.999)


def test_a_requests_own_cap_counts_as_the_largest_depth(step_context):
    ctx = replace(step_context(2), depth_caps=torch.tensor([3, 100]))
    steer = rule(match_decay=0.0)
    state = steer.updated(ctx, verdict([3, 3], [3, 3]), steer.init(2), depth=8)
    assert state.threshold.tolist() == pytest.approx([0.8, 0.799])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": 1.1}, r"^threshold must be in \[0, 1\], got 1.1$"),
        ({"target": -0.1}, r"^target must be in \[0, 1\], got -0.1$"),
        ({"increment": 0.0}, r"^increment must be in \(0, 1\], got 0.0$"),
        ({"match_decay": 1.0}, r"^match_decay must be in \[0, 1\), got 1.0$"),
        ({"threshold_decay": 1.0}, r"^threshold_decay must be in \[0, 1\), got 1.0$"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        rule(**changes)
