"""Prompt lookup against a plain scan of the text, and its life in slots."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.drafters import DraftBatch, NgramDrafter
from dspark.drafters.ngram_index import PRIOR_WEIGHT
from dspark.types import NO_TOKEN, Signal


def always(k, signals):
    return torch.ones(next(iter(signals.values())).shape[0], dtype=torch.bool)


def batch_of(texts, slots=None) -> DraftBatch:
    return DraftBatch(
        slots=torch.arange(len(texts)) if slots is None else torch.tensor(slots),
        tokens=texts,
        lengths=torch.tensor([len(text) for text in texts], dtype=torch.int64),
        sampler=None,  # point masses are not drawn
        seeds=torch.zeros(len(texts), dtype=torch.long),
    )


def opened(min_n=1, max_n=3, num_slots=16) -> NgramDrafter:
    drafter = NgramDrafter(min_n, max_n)
    drafter.open(num_slots, 8, 10_000)
    return drafter


def draft_rows(drafter, texts, plan, proceed=always, slots=None):
    """Rows of drafted tokens, and the Draft."""
    draft = drafter.propose(batch_of(texts, slots), torch.tensor(plan, dtype=torch.int64), proceed)
    rows = [row[:n].tolist() for row, n in zip(draft.tokens, draft.lengths.tolist(), strict=True)]
    return rows, draft


# The reference: what the words say, by scanning the whole text every time.


def scan_source(text, min_n, max_n):
    """Where the most recent earlier occurrence of the longest suffix goes on, or None."""
    for n in range(max_n, min_n - 1, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                return start + n
    return None


def scan_estimate(text, drafted, token, max_n):
    """Blended relative frequency of ``token`` after the last 0 to max_n tokens of text and draft."""
    whole, estimate = text + drafted, 0.0
    for n in range(min(max_n, len(whole)) + 1):
        context = whole[len(whole) - n :]
        after = [text[i + n] for i in range(len(text) - n) if text[i : i + n] == context]
        estimate = (after.count(token) + PRIOR_WEIGHT * estimate) / (len(after) + PRIOR_WEIGHT)
    return estimate


def scan_draft(text, min_n, max_n, depth):
    source = scan_source(text, min_n, max_n)
    drafted, estimates = [], []
    for k in range(depth if source is not None else 0):
        token = (text + drafted)[source + k]
        estimates.append(scan_estimate(text, drafted, token, max_n))
        drafted.append(token)
    return drafted, estimates


@settings(deadline=None)
@given(
    text=st.lists(st.integers(0, 2), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 30), max_size=4),
    orders=st.sampled_from([(1, 1), (1, 3), (2, 2), (2, 4), (3, 3)]),
)
def test_equals_a_scan_of_the_text_however_it_grew(text, cuts, orders):
    min_n, max_n = orders
    drafter = opened(min_n, max_n)
    for end in sorted({min(cut, len(text)) for cut in cuts} | {len(text)}):
        rows, draft = draft_rows(drafter, [text[:end]], [6])
        tokens, estimates = scan_draft(text[:end], min_n, max_n, 6)
        assert rows == [tokens]
        signal = draft.signals[Signal.TOKEN_PROBABILITY][0, : len(tokens)]
        torch.testing.assert_close(signal, torch.tensor(estimates))


def test_longest_match_first():
    # "7" last occurred before 3, but "5 7" before 1
    rows, _ = draft_rows(opened(), [[5, 7, 1, 8, 7, 3, 5, 7]], [2])
    assert rows == [[1, 8]]


def test_most_recent_of_equally_long_matches():
    rows, _ = draft_rows(opened(1, 1), [[4, 1, 4, 2, 4]], [1])
    assert rows == [[2]]


def test_a_suffix_shorter_than_min_n_does_not_count():
    text = [1, 2, 3, 9, 3]
    assert draft_rows(opened(1, 3), [text], [2])[0] == [[9, 3]]
    assert draft_rows(opened(2, 3), [text], [2])[0] == [[]]


def test_a_copy_goes_on_periodically_past_the_end():
    rows, _ = draft_rows(opened(), [[1, 2, 3, 1, 2, 3]], [8])
    assert rows == [[1, 2, 3, 1, 2, 3, 1, 2]]


def test_estimates_by_hand():
    # a: followed by b twice and c once; "x a" only by b, once. Text: a b a c x a b y x a
    text = [0, 1, 0, 2, 3, 0, 1, 4, 3, 0]
    _, draft = draft_rows(opened(1, 2), [text], [1])
    w = PRIOR_WEIGHT
    share = 2 / (10 + w)
    after_a = (2 + w * share) / (3 + w)
    after_xa = (1 + w * after_a) / (1 + w)
    assert draft.tokens.tolist() == [[1]]
    assert draft.signals[Signal.TOKEN_PROBABILITY].item() == pytest.approx(after_xa)
    assert draft.signals[Signal.TOP1_PROBABILITY].item() == pytest.approx(after_xa)


def test_estimates_rise_with_repetition():
    estimate = [
        draft_rows(opened(), [[1, 2, 3, 4] * n], [1])[1].signals[Signal.TOP1_PROBABILITY].item()
        for n in (2, 3, 8, 40)
    ]
    assert estimate == sorted(estimate)
    assert estimate[-1] > 0.9


def test_draft_is_padded_and_a_point_mass():
    texts = [[1, 2, 1], [5, 6, 7], [3, 3, 3]]
    _, draft = draft_rows(opened(), texts, [2, 4, 3])
    assert draft.q is None
    assert draft.lengths.tolist() == [2, 0, 3]
    assert draft.tokens.shape == (3, 4)
    drafted = torch.arange(4) < draft.lengths[:, None]
    assert bool(((draft.tokens == NO_TOKEN) == ~drafted).all())
    for signal in draft.signals.values():
        assert torch.equal(signal.isnan(), ~drafted)


def test_every_signal_follows_from_the_one_estimate():
    batch = replace(batch_of([[1, 2, 1, 2, 1], [5, 6, 7]]), needs=NgramDrafter.signals)
    draft = opened().propose(batch, torch.tensor([3, 2]), always)
    assert draft.signals.keys() == NgramDrafter.signals
    for k in range(3):
        p = draft.signals[Signal.TOP1_PROBABILITY][0, k].item()
        assert 0 < p < 1
        assert draft.signals[Signal.CONFIDENCE][0, k].item() == p
        entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
        assert draft.signals[Signal.ENTROPY][0, k].item() == pytest.approx(entropy, rel=1e-4)
        assert draft.signals[Signal.MARGIN][0, k].item() == pytest.approx(math.log(p / (1 - p)), rel=1e-4)
    assert draft.signals[Signal.MARGIN][1].isnan().all()


@pytest.mark.parametrize("plan", [[0, 0], []])
def test_nothing_planned_gives_no_columns(plan):
    _, draft = draft_rows(opened(), [[1, 1]] * len(plan), plan)
    assert draft.tokens.shape == (len(plan), 0)
    assert draft.tokens.dtype == draft.lengths.dtype == torch.int64
    assert draft.lengths.tolist() == plan


def test_known_failure_8_never_more_than_planned():
    texts = [[1] * 10 for _ in range(5)]
    rows, _ = draft_rows(opened(), texts, [0, 1, 2, 0, 7])
    assert [len(row) for row in rows] == [0, 1, 2, 0, 7]


class Untouchable(list):
    """A row whose tokens may not be looked at."""

    def __getitem__(self, index):
        raise AssertionError("a depth-0 row was read")

    __iter__ = __getitem__


def test_a_depth_0_row_is_not_even_read():
    rows, _ = draft_rows(opened(), [Untouchable([1, 1]), [2, 2]], [0, 3])
    assert rows == [[], [2, 2, 2]]


def test_proceed_is_asked_after_every_token_and_obeyed():
    asked = []

    def proceed(k, signals):
        seen = signals[Signal.TOKEN_PROBABILITY]
        asked.append((k, (~seen.isnan()).tolist()))
        return torch.tensor([k < 2, True, k < 3])

    rows, draft = draft_rows(opened(), [[1, 1], [2, 3], [4, 4]], [6, 6, 6], proceed)
    assert [len(row) for row in rows] == [2, 0, 3]
    yes, no = [True], [False]
    assert asked == [
        (1, [yes, no, yes]),
        (2, [yes * 2, no * 2, yes * 2]),
        (3, [yes * 2 + no, no * 3, yes * 3]),
    ]
    assert draft.tokens.shape == (3, 6)


def test_known_failure_7_in_step_after_any_depths():
    """Depth K, 0, K: after steps without drafts it proposes what a fresh drafter would."""
    rng = random.Random(0)
    texts = [[rng.randrange(4) for _ in range(20)] for _ in range(3)]
    drafter = opened()
    for step in range(60):
        plan = [0] * 3 if step % 5 in (1, 2) else [rng.randrange(7) for _ in texts]
        assert draft_rows(drafter, texts, plan)[0] == draft_rows(opened(), texts, plan)[0]
        for text in texts:
            text.extend(rng.randrange(4) for _ in range(rng.randrange(4)))


def test_rows_keep_to_their_slots_in_any_order_and_company():
    rng = random.Random(1)
    texts = {slot: [rng.randrange(3) for _ in range(15)] for slot in (0, 3, 7, 9)}
    drafter = opened()
    for _ in range(30):
        slots = rng.sample(sorted(texts), rng.randint(1, 4))
        rows, _ = draft_rows(drafter, [texts[slot] for slot in slots], [5] * len(slots), slots=slots)
        for slot, row in zip(slots, rows, strict=True):
            assert row == scan_draft(texts[slot], 1, 3, 5)[0]
            texts[slot].append(rng.randrange(3))


def test_a_released_slot_is_forgotten():
    drafter = opened()
    draft_rows(drafter, [[9, 7, 2, 3, 1]], [2])
    drafter.release(0)
    drafter.release(5)  # never used: nothing to forget
    # by its length and the tokens at 2..4 the new text could be the old one's continuation; only
    # the old one knows what follows 7
    assert draft_rows(drafter, [[5, 6, 2, 3, 1, 7]], [1])[0] == [[]]


@pytest.mark.parametrize("other", [[9, 8], [4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9, 1]])
def test_another_text_in_a_slot_never_sees_the_former_one(other):
    drafter = opened()
    draft_rows(drafter, [[9, 1, 8, 2, 9, 1]], [2])
    assert draft_rows(drafter, [other], [4])[0] == [[]]  # it repeats nothing of its own


def test_open_forgets_all():
    drafter = opened()
    draft_rows(drafter, [[1, 2, 1]], [1])
    drafter.open(4, 8, 100)
    assert draft_rows(drafter, [[1, 2, 1, 5]], [1])[0] == [[]]


class Counting(list):
    """A row that counts the tokens read from it."""

    num_read = 0

    def __getitem__(self, index):
        value = super().__getitem__(index)
        self.num_read += len(value) if isinstance(index, slice) else 1
        return value

    def __iter__(self):
        self.num_read += len(self)
        return super().__iter__()


def test_a_new_token_costs_the_same_however_long_the_text():
    rng = random.Random(2)
    read = []
    for length in (100, 20_000):
        text = Counting(rng.randrange(50) for _ in range(length))
        drafter = opened()
        draft_rows(drafter, [text], [4])
        text.append(text[10])  # repeats, so that there is something to copy
        text.num_read = 0
        rows, _ = draft_rows(drafter, [text], [4])
        assert len(rows[0]) == 4
        read.append(text.num_read)
    assert read[0] == read[1] < 20


def test_16_rows_draft_8_tokens_in_little_time():
    rng = random.Random(3)
    texts = [[rng.randrange(100) for _ in range(500)] for _ in range(16)]
    drafter = opened()
    draft_rows(drafter, texts, [8] * 16)
    times_s = []
    for _ in range(30):
        for text in texts:
            text.extend(text[-90:-85])
        batch, plan = batch_of(texts), torch.full((16,), 8)
        start_s = time.perf_counter()
        draft = drafter.propose(batch, plan, always)
        times_s.append(time.perf_counter() - start_s)
    assert draft.lengths.tolist() == [8] * 16
    assert min(times_s) < 3e-3  # 0.5 ms where nothing else runs


@pytest.mark.parametrize(("min_n", "max_n"), [(0, 2), (3, 2), (-1, -1)])
def test_bad_orders_are_refused(min_n, max_n):
    with pytest.raises(ValueError, match=f"1 <= min_n <= max_n, got min_n={min_n} and max_n={max_n}"):
        NgramDrafter(min_n, max_n)
