"""A target that listens while it answers knows what a second pass over the answers would say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dspark.training.answers import Answer, AnswerSettings, encoded_prompts, generate_answers, read_answers
from dspark.training.lesson_store import StoredTeacher
from dspark.training.lessons import TargetTeacher
from dspark.training.listening import ListeningTarget
from dspark.workload.prompts import PromptSpec, load_prompts
from tests.training.lessons_tools import load

LAYERS = (-1, 0)
SETTINGS = AnswerSettings(
    temperatures=(0.0, 0.8), top_p=1.0, max_new_tokens=7, batch_size=3, max_prompt_tokens=None, seed=3
)


@pytest.fixture(scope="module")
def target(tiny_llama: Path):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def prompts(target):
    chats = load_prompts(PromptSpec(num_requests=5, max_prompt_chars=200))
    return encoded_prompts(target, {f"builtin/{p.id}": p for p in chats}, SETTINGS)


def test_lessons_heard_are_those_of_a_second_pass(target, prompts, tmp_path: Path) -> None:
    teacher = TargetTeacher(target, LAYERS)
    listening = ListeningTarget(teacher)
    store = StoredTeacher(teacher, tmp_path, LAYERS)
    generate_answers(listening, prompts, SETTINGS, tmp_path, lambda a: store.keep(listening.lesson(a)))
    answers = read_answers(tmp_path)
    assert len(answers) == 10
    asked: list[Answer] = []
    again = StoredTeacher(teacher, tmp_path, LAYERS)
    again.fill(answers, lambda tokens: asked.append(tokens))
    assert asked == []  # all were there
    for answer, kept in zip(answers, again.lessons(answers), strict=True):
        (computed,) = teacher.lessons([answer])
        # bfloat16 rounds by up to 2^-9 of a value; slots and pass sizes move float32 a little
        torch.testing.assert_close(kept.features[:-1], computed.features[:-1], atol=1e-4, rtol=2**-8)
        assert not kept.features[-1].any()
        torch.testing.assert_close(kept.hidden, computed.hidden, atol=1e-4, rtol=2**-8)
        torch.testing.assert_close(kept.log_normaliser, computed.log_normaliser, atol=1e-5, rtol=1e-4)


def test_rows_that_say_the_same_are_told_apart_or_are_the_same(target, prompts, tmp_path: Path) -> None:
    # one prompt many times in one batch: answers share beginnings, and one may end where another goes on
    key = next(iter(prompts))
    settings = replace(SETTINGS, temperatures=(0.0, *[0.4] * 7), batch_size=8, max_new_tokens=4)
    teacher = TargetTeacher(target, LAYERS)
    listening = ListeningTarget(teacher)
    store = StoredTeacher(teacher, tmp_path, LAYERS)
    one = {key: prompts[key]}
    generate_answers(listening, one, settings, tmp_path, lambda a: store.keep(listening.lesson(a)))
    answers = read_answers(tmp_path)
    assert len(answers) == 8
    for answer, kept in zip(answers, store.lessons(answers), strict=True):
        (computed,) = teacher.lessons([answer])
        torch.testing.assert_close(kept.hidden, computed.hidden, atol=1e-4, rtol=2**-8)


def test_listening_changes_no_answer(target, prompts, tmp_path: Path) -> None:
    generate_answers(target, prompts, SETTINGS, tmp_path / "plain")
    generate_answers(ListeningTarget(TargetTeacher(target, LAYERS)), prompts, SETTINGS, tmp_path / "heard")
    assert read_answers(tmp_path / "plain") == read_answers(tmp_path / "heard")


def test_only_an_answer_that_just_ended_has_a_lesson(target, prompts, tmp_path: Path) -> None:
    listening = ListeningTarget(TargetTeacher(target, LAYERS))
    generate_answers(listening, prompts, SETTINGS, tmp_path)
    last = read_answers(tmp_path)[-1]
    other = replace(last, token_ids=(*last.token_ids, 1))
    with pytest.raises(KeyError, match="was not heard"):
        listening.lesson(other)
