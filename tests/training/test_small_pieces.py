"""Anchors, labels, schedule, vocabulary and split, against values worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from dspark.training.anchors import all_anchors, draw_anchors, labels_after
from dspark.training.answers import Answer
from dspark.training.build import spread_layers
from dspark.training.data import split_answers
from dspark.training.schedule import generator_of, items_of_step, learning_rate
from dspark.training.vocabulary import covered_share, draft_ids_of, draft_vocabulary, offsets_of
from tests.training.lessons_tools import TRAIN


def _answer(name: str, tokens: tuple[int, ...], temperature: float = 0.0) -> Answer:
    return Answer(id=name, temperature=temperature, prompt_ids=(1, 2), token_ids=tokens)


# ---- anchors -----------------------------------------------------------------------------------


def test_anchors_are_answer_tokens_with_a_token_behind_them() -> None:
    # prompt 0-2, answer 3-6: 3, 4 and 5 have one behind them; 2, the prompt's last, is no anchor
    assert all_anchors(3, 7).tolist() == [3, 4, 5]
    assert all_anchors(3, 4).tolist() == []


def test_drawn_anchors_are_a_subset_and_cover_everything_in_time() -> None:
    seen = set()
    for step in range(40):
        drawn = draw_anchors(3, 13, 4, generator_of(0, step)).tolist()
        assert len(set(drawn)) == 4
        assert drawn == sorted(drawn)
        seen.update(drawn)
    assert seen == set(range(3, 12))
    assert draw_anchors(3, 7, 100, generator_of(0)).tolist() == [3, 4, 5]


def test_labels_stop_at_the_end() -> None:
    tokens = torch.tensor([10, 11, 12, 13, 14, 15])
    labels, exists = labels_after(tokens, torch.tensor([2, 4]), 3)
    assert labels.tolist() == [[13, 14, 15], [15, 0, 0]]
    assert exists.tolist() == [[True, True, True], [True, False, False]]


# ---- schedule ----------------------------------------------------------------------------------


def test_learning_rate_warms_up_and_follows_a_cosine() -> None:
    settings = replace(TRAIN, num_steps=10, warmup_share=0.2, learning_rate=1.0, final_share=0.1)
    # 2 steps of warm-up; then 8 steps from 1 to 0.1: in the middle (1 + 0.1) / 2
    assert [learning_rate(step, settings) for step in (0, 1, 2)] == [0.5, 1.0, 1.0]
    assert learning_rate(6, settings) == pytest.approx(0.55)
    assert learning_rate(10, settings) == pytest.approx(0.1)
    assert learning_rate(4, settings) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert learning_rate(0, replace(settings, warmup_share=0.0)) == 1.0


def test_every_epoch_has_every_item_once_in_its_own_order() -> None:
    steps = [items_of_step(step, num_items=7, batch_size=3, seed=1) for step in range(14)]
    order = [item for step in steps for item in step]
    epochs = [order[start : start + 7] for start in range(0, 42, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert steps[9] == items_of_step(9, num_items=7, batch_size=3, seed=1)


def test_generators_of_different_numbers_differ() -> None:
    numbers = [(0, 0), (0, 1), (1, 0), (0, 0, 0), (1, 1)]
    draws = {torch.randint(2**62, (1,), generator=generator_of(*each)).item() for each in numbers}
    assert len(draws) == len(numbers)


# ---- vocabulary --------------------------------------------------------------------------------


def test_the_vocabulary_is_the_most_frequent_tokens_and_its_map_leads_back() -> None:
    answers = [_answer("s/1#T0-0", (7, 7, 7, 3, 3, 9)), _answer("s/2#T0-0", (7, 5, 3, 9))]
    # counts: 7 four times, 3 three times, 9 twice, 5 once; 8 is taken because it must be
    ids = draft_vocabulary(answers, 4, vocab_size=12, always=(8,))
    assert ids.tolist() == [3, 7, 8, 9]
    assert covered_share(ids, answers) == pytest.approx(9 / 10)
    offsets = offsets_of(ids)
    assert (torch.arange(4) + offsets).tolist() == [3, 7, 8, 9]
    assert offsets.tolist() == [3, 6, 6, 6]
    table = draft_ids_of(ids, 12)
    assert table[ids].tolist() == [0, 1, 2, 3]
    assert table.tolist().count(-1) == 8


def test_a_vocabulary_larger_than_what_was_seen_is_filled_up() -> None:
    answers = [_answer("s/1#T0-0", (5, 5))]
    ids = draft_vocabulary(answers, 3, vocab_size=6)
    assert (ids.tolist(), covered_share(ids, answers)) == ([0, 1, 5], 1.0)
    with pytest.raises(ValueError, match="at most the target's vocabulary, 6, got 7; null takes all"):
        draft_vocabulary([], 7, vocab_size=6)


# ---- split -------------------------------------------------------------------------------------


def test_no_prompt_is_trained_and_evaluated_on() -> None:
    answers = [_answer(f"s/{i}#T{t:g}-0", (1, 2, 3), t) for i in range(60) for t in (0.0, 1.0)]
    split = split_answers(answers, replace(TRAIN, num_eval_answers=5))
    held = {answer.prompt_key for answer in split.held_out}
    assert not held & {answer.prompt_key for answer in split.training}
    assert [answer.temperature for answer in split.held_out] == [0.0] * 5 + [1.0] * 5
    # 30 % of 60 prompts are 18; 3.5 standard deviations of sqrt(60 * 0.3 * 0.7) = 3.5 are 12
    assert 2 * (60 - 30) <= len(split.training) <= 2 * (60 - 6)
    more = split_answers([*answers, _answer("s/new#T0-0", (1, 2))], replace(TRAIN, num_eval_answers=5))
    assert {a.id for a in split.training} <= {a.id for a in more.training}, "a prompt changed sides"


def test_answers_with_nothing_to_guess_are_left_out_and_too_few_are_refused() -> None:
    answers = [_answer("s/1#T0-0", (5,)), _answer("s/2#T0-0", (5, 6))]
    with pytest.raises(ValueError, match="1 answers of 2 tokens or more, .*: generate more"):
        split_answers(answers, TRAIN)


# ---- feature layers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num", "layers", "expected"),
    [
        (5, 30, (1, 8, 14, 20, 27)),  # round(1 + i * 26 / 4): 1, 7.5, 14, 20.5, 27, halves to even
        (3, 30, (1, 14, 27)),
        (1, 30, (27,)),
        (2, 2, (-1, 0)),  # few layers: those below the last
        (2, 4, (1, 2)),
    ],
)
def test_feature_layers_are_spread(num: int, layers: int, expected: tuple[int, ...]) -> None:
    assert spread_layers(num, layers) == expected


def test_more_feature_layers_than_there_are() -> None:
    with pytest.raises(
        ValueError, match="must be at most 2, what the target has below its last layer, got 3"
    ):
        spread_layers(3, 2)
