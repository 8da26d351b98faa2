"""The drafter without a model: what its tokens and confidences depend on."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from dspark import seeding
from dspark.drafters import DraftBatch, SyntheticDrafter
from dspark.types import NO_TOKEN, Signal


def always(k, signals):
    return torch.ones(len(signals[Signal.CONFIDENCE]), dtype=torch.bool)


def never_asked(k, signals):
    raise AssertionError("a block drafter does not ask")


def batch_of(lengths, seeds, slots=None) -> DraftBatch:
    return DraftBatch(
        slots=torch.arange(len(lengths)) if slots is None else torch.tensor(slots),
        tokens=[[0] * length for length in lengths],
        lengths=torch.tensor(lengths, dtype=torch.int64),
        sampler=None,  # point masses are not drawn
        seeds=torch.tensor(seeds, dtype=torch.int64),
    )


def propose(drafter, lengths, seeds, plan, proceed=always, slots=None):
    drafter.open(64, 16, 1000)
    return drafter.propose(batch_of(lengths, seeds, slots), torch.tensor(plan), proceed)


PROFILE = (0.9, 0.7, 0.5)


def test_confidence_is_the_profile_and_its_last_value_goes_on():
    draft = propose(SyntheticDrafter(100, PROFILE), [5, 9], [1, 2], [5, 2])
    expected = torch.tensor([[0.9, 0.7, 0.5, 0.5, 0.5], [0.9, 0.7, torch.nan, torch.nan, torch.nan]])
    torch.testing.assert_close(draft.signals[Signal.CONFIDENCE], expected, equal_nan=True, rtol=0, atol=1e-7)


def test_draft_is_padded_and_a_point_mass():
    draft = propose(SyntheticDrafter(7, PROFILE), [5, 9, 2], [1, 2, 3], [2, 0, 3])
    assert draft.q is None
    assert draft.lengths.tolist() == [2, 0, 3]
    drafted = torch.arange(3) < draft.lengths[:, None]
    assert bool(((draft.tokens == NO_TOKEN) == ~drafted).all())
    assert bool((draft.tokens[drafted] < 7).all())
    assert torch.equal(draft.signals[Signal.CONFIDENCE].isnan(), ~drafted)


@pytest.mark.parametrize("plan", [[0, 0], []])
@pytest.mark.parametrize("autoregressive", [True, False])
def test_nothing_planned_gives_no_columns(plan, autoregressive):
    drafter = SyntheticDrafter(100, PROFILE, spread=1.0, autoregressive=autoregressive)
    draft = drafter.propose(
        batch_of([4] * len(plan), [1] * len(plan)), torch.tensor(plan, dtype=torch.long), never_asked
    )
    assert draft.tokens.shape == (len(plan), 0)
    assert draft.lengths.tolist() == plan


@pytest.mark.parametrize("autoregressive", [True, False])
def test_known_failure_8_exactly_as_many_as_planned(autoregressive):
    drafter = SyntheticDrafter(100, PROFILE, autoregressive=autoregressive)
    plan = [0, 1, 2, 0, 7]
    assert propose(drafter, [5] * 5, list(range(5)), plan).lengths.tolist() == plan


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_row_is_the_same_in_any_batch_slot_and_depth(spread):
    drafter = SyntheticDrafter(1000, PROFILE, spread)
    together = propose(drafter, [5, 9, 30, 2], [1, 2, 3, 4], [6, 6, 6, 6])
    alone = propose(drafter, [30], [3], [4], slots=[11])
    assert torch.equal(alone.tokens[0], together.tokens[2, :4])
    assert torch.equal(alone.signals[Signal.CONFIDENCE][0], together.signals[Signal.CONFIDENCE][2, :4])


def test_seed_position_and_round_each_change_the_tokens():
    drafter = SyntheticDrafter(10**6, PROFILE)
    base = propose(drafter, [10], [1], [8]).tokens[0]
    other_seed = propose(drafter, [10], [2], [8]).tokens[0]
    next_round = propose(drafter, [11], [1], [8]).tokens[0]
    assert len(set(base.tolist())) == 8
    assert not bool((base == other_seed).any())
    # position 11 is drafted in both rounds, and anew in the second
    assert not bool((base[1:] == next_round[:-1]).any())


def test_tokens_are_uniform():
    draft = propose(SyntheticDrafter(10, PROFILE), list(range(500)), list(range(500)), [8] * 500)
    counts = torch.bincount(draft.tokens.flatten(), minlength=10)
    assert len(counts) == 10
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_tokens_are_independent_of_the_numbers_that_accept_them():
    """Synthetic acceptance uses the same purpose, position and committed length as its lane."""
    lengths, seeds = torch.arange(2000) + 5, torch.arange(2000)
    u = seeding.uniform(seeds, lengths, seeding.Purpose.SYNTHETIC, lengths)
    draft = propose(SyntheticDrafter(1 << 20, (0.5,), 1.0), lengths.tolist(), seeds.tolist(), [1] * 2000)
    for value in (draft.tokens[:, 0].double(), draft.signals[Signal.CONFIDENCE][:, 0].double()):
        assert abs(stats.spearmanr(u.numpy(), value.numpy()).statistic) < 0.1


def test_spread_moves_a_whole_row_and_every_step_anew():
    drafter = SyntheticDrafter(100, PROFILE, spread=0.8)
    lengths = list(range(10, 2010))
    confidence = propose(drafter, lengths, [1] * 2000, [3] * 2000).signals[Signal.CONFIDENCE].double()
    shift = torch.logit(confidence) - torch.logit(torch.tensor(PROFILE, dtype=torch.float64))
    torch.testing.assert_close(shift[:, 0], shift[:, 2], rtol=0, atol=1e-4)  # one number a row and step
    assert stats.kstest(shift[:, 0].numpy(), stats.norm(0, 0.8).cdf).pvalue > 1e-3


def test_spread_leaves_certainty_alone():
    draft = propose(SyntheticDrafter(100, (1.0, 0.0), spread=3.0), [7] * 50, list(range(50)), [2] * 50)
    assert draft.signals[Signal.CONFIDENCE].tolist() == [[1.0, 0.0]] * 50


def test_proceed_ends_rows_one_by_one():
    asked = []

    def proceed(k, signals):
        asked.append((k, (~signals[Signal.CONFIDENCE].isnan()).sum(1).tolist()))
        return torch.tensor([k < 2, True, k < 1, k != 2])

    draft = propose(SyntheticDrafter(100, PROFILE), [5] * 4, [1, 2, 3, 4], [4, 3, 4, 4], proceed)
    assert draft.lengths.tolist() == [2, 3, 1, 2]
    assert asked == [(1, [1, 1, 1, 1]), (2, [2, 2, 1, 2]), (3, [2, 3, 1, 2])]
    whole = propose(SyntheticDrafter(100, PROFILE), [5] * 4, [1, 2, 3, 4], [4, 3, 4, 4])
    assert torch.equal(draft.tokens[0, :2], whole.tokens[0, :2])


def test_a_block_drafter_asks_nothing():
    drafter = SyntheticDrafter(100, PROFILE, autoregressive=False)
    assert propose(drafter, [5, 5], [1, 2], [4, 2], never_asked).lengths.tolist() == [4, 2]


def test_the_plan_is_not_handed_out():
    plan = torch.tensor([2, 1])
    draft = SyntheticDrafter(100, PROFILE, autoregressive=False).propose(
        batch_of([4, 4], [1, 2]), plan, never_asked
    )
    assert draft.lengths.data_ptr() != plan.data_ptr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be >= 1, got 0"),
        ({"acceptance": ()}, "acceptance must hold"),
        ({"acceptance": (0.5, 1.2)}, r"in \[0, 1\] at every depth, got 1.2 at depth 2"),
        ({"acceptance": (float("nan"),)}, "got nan at depth 1"),
        ({"spread": -0.1}, "spread must be finite and >= 0 logits, got -0.1"),
        ({"spread": float("inf")}, "spread must be finite"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SyntheticDrafter(**{"vocab_size": 100, "acceptance": PROFILE, **arguments})
