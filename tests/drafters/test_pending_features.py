"""Features are found again by position, whatever was overwritten, and nothing is kept longer than needed."""

import pytest
import torch

from dspark.drafters.pending_features import PendingFeatures
from dspark.models.base import PassRow


def put(pending, slot, start, values):
    row = PassRow(slot=slot, start=start, token_ids=[0] * len(values), num_logits=0)
    pending.put([row], torch.tensor(values)[:, None])


def take(pending, slot, start, stop):
    return pending.take(slot, start, stop)[:, 0].tolist()


def test_rejected_positions_are_overwritten_by_the_next_pass():
    pending = PendingFeatures(1)
    put(pending, 0, 0, [0.0, 1.0, 2.0])
    put(pending, 0, 3, [3.0, 4.5, 5.5, 6.5])  # the last three were drafts, of which none was accepted
    put(pending, 0, 4, [4.0, 5.0])
    assert take(pending, 0, 1, 6) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_rows_of_one_pass_are_told_apart():
    pending = PendingFeatures(3)
    rows = [PassRow(slot=s, start=0, token_ids=[0] * n, num_logits=0) for s, n in ((2, 1), (0, 3))]
    pending.put(rows, torch.arange(4.0)[:, None])
    assert take(pending, 0, 0, 3) == [1.0, 2.0, 3.0]
    assert take(pending, 2, 0, 1) == [0.0]


def test_the_last_taken_and_the_later_ones_stay():
    pending = PendingFeatures(1)
    put(pending, 0, 0, [0.0, 1.0, 2.0])
    put(pending, 0, 3, [3.0, 4.0])
    assert take(pending, 0, 0, 2) == [0.0, 1.0]
    assert take(pending, 0, 1, 4) == [1.0, 2.0, 3.0]
    assert take(pending, 0, 3, 5) == [3.0, 4.0]
    with pytest.raises(AssertionError, match="slot 0 lacks features of positions 2 to 5"):
        pending.take(0, 2, 5)


def test_a_forgotten_slot_lacks_everything():
    pending = PendingFeatures(1)
    put(pending, 0, 0, [0.0, 1.0])
    pending.forget(0)
    with pytest.raises(AssertionError, match="lacks features"):
        pending.take(0, 0, 1)


def test_a_taken_feature_does_not_hold_on_to_its_pass():
    pending = PendingFeatures(1)
    put(pending, 0, 0, [float(i) for i in range(100)])
    pending.take(0, 0, 100)
    ((_, kept),) = pending._pieces[0]
    assert kept.untyped_storage().nbytes() == 4, "one float32, not a view of a hundred"


def test_nothing_is_kept_of_rows_that_are_too_long_to_be_drafted_for():
    pending = PendingFeatures(2, max_tokens=3)
    for slot in (0, 1):
        put(pending, slot, 0, [0.0, 1.0, 2.0])
    put(pending, 0, 3, [3.0])
    assert pending._pieces[0] == []
    assert take(pending, 1, 0, 3) == [0.0, 1.0, 2.0]


def test_a_row_that_waits_does_not_hold_on_to_the_passes_of_others():
    pending = PendingFeatures(2)
    rows = [PassRow(slot=0, start=4, token_ids=[0], num_logits=1)]
    rows += [PassRow(slot=1, start=0, token_ids=[0] * 99, num_logits=0)]
    pending.put(rows, torch.arange(100.0)[:, None])
    ((_, kept),) = pending._pieces[0]
    assert kept.untyped_storage().nbytes() == 4
    put(pending, 0, 5, [float(i) for i in range(50)])
    put(pending, 0, 7, [7.0])  # 48 of them were rejected
    assert pending._pieces[0][1][1].untyped_storage().nbytes() == 8
