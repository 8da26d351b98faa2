"""Many blocks at once are each block alone, with its own context and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dspark.drafters.eagle3_unroll import unroll
from dspark.training.anchors import all_anchors
from dspark.training.batches import make_batch
from dspark.training.lessons import TargetTeacher
from dspark.training.packed import block_hidden, chain_hidden
from tests.training.lessons_tools import NO_HEADS, answers_of, load, trainee_of

STARTS = ([0, 2, 5], [1], [0, 3])  # of three answers, past their prompts


@pytest.fixture(scope="module")
def target(tiny_llama: Path):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def lessons(target):
    return TargetTeacher(target, (-1, 0)).lessons(answers_of(target, count=3))


def _batch(lessons, num_drafts: int = 3):
    anchors = [torch.tensor(s) + lesson.num_prompt for s, lesson in zip(STARTS, lessons, strict=True)]
    return make_batch(lessons, anchors, num_drafts)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_packed_blocks_are_single_blocks(target, lessons, qk_norm: bool) -> None:
    drafter = trainee_of(target, qk_norm=qk_norm, num_layers=2).drafter
    batch = _batch(lessons)
    packed = block_hidden(drafter, batch)
    place = 0
    for lesson, starts in zip(lessons, STARTS, strict=True):
        for start in starts:
            anchor = lesson.num_prompt + start
            # the context is what lies before the anchor, and nothing more is handed in
            context = drafter.context(lesson.features[None, :anchor])
            keys_values = drafter.context_kv(context, torch.arange(anchor)[None])
            slots = drafter.slots(lesson.token_ids[None, anchor], 3)
            alone = drafter.block(slots, anchor + torch.arange(3)[None], keys_values, None)
            torch.testing.assert_close(packed[place], alone[0], atol=1e-5, rtol=1e-4)
            place += 1
    assert place == len(packed)


def test_packed_chains_are_single_chains(target, lessons) -> None:
    drafter = trainee_of(target, kind="eagle3", mask_token_id=None, **NO_HEADS).drafter
    packed = chain_hidden(drafter, _batch(lessons))
    place = 0
    for lesson, starts in zip(lessons, STARTS, strict=True):
        for start in starts:
            anchor = torch.tensor([[lesson.num_prompt + start]])
            alone = unroll(drafter, lesson.features[None], lesson.token_ids[None], anchor, 3)
            torch.testing.assert_close(packed[place], alone[0, 0], atol=1e-5, rtol=1e-4)
            place += 1
    assert place == len(packed)


def test_a_batch_says_what_comes_before_and_after_each_guess(target, lessons) -> None:
    batch = _batch(lessons)
    lesson = lessons[0]
    tokens, first = lesson.token_ids, lesson.num_prompt
    # the second block starts two tokens into the answer
    at = first + 2
    assert batch.anchors[1] == at
    assert batch.previous[1].tolist() == tokens[at : at + 3].tolist()
    assert batch.labels[1].tolist() == tokens[at + 1 : at + 4].tolist()
    # the token at `at + 1` is guessed by the law of position `at`
    torch.testing.assert_close(batch.hidden[1], lesson.hidden[2:5])
    torch.testing.assert_close(batch.log_normaliser[1], lesson.log_normaliser[2:5])
    assert batch.num_blocks == (3, 1, 2)


def test_past_the_end_nothing_counts(target, lessons) -> None:
    trainee = trainee_of(target)
    lesson = lessons[0]
    every = all_anchors(lesson.num_prompt, len(lesson.features))
    sums = trainee(make_batch([lesson], [every], 3))
    # n anchors: n first guesses, n - 1 second ones, n - 2 third ones
    assert sums.count.tolist() == [len(every), len(every) - 1, len(every) - 2]
    assert all(bool(value.isfinite().all()) for value in (sums.terms, sums.survival, sums.overlap))
    assert bool((sums.match <= sums.count).all())


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
def test_everything_that_is_trained_has_a_gradient(target, lessons, kind: str) -> None:
    trainee = trainee_of(
        target, vocabulary=torch.arange(0, 259, 2), train_head=True, markov_head_type=kind, qk_norm=True
    )
    trainee(_batch(lessons)).loss.backward()
    missing = [
        n for n, p in trainee.named_parameters() if p.requires_grad and not bool(p.grad.abs().sum() > 0)
    ]
    assert missing == []
    frozen = {n for n, p in trainee.named_parameters() if not p.requires_grad}
    assert frozen == {"drafter.embed_tokens.weight"}
