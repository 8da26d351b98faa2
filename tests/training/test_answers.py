"""Answers are the target's own, the same however often they were interrupted, and nobody else's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dspark.engine.engine import Engine
from dspark.training.answers import (
    FILE,
    Answer,
    AnswerSettings,
    check_answers,
    encoded_prompts,
    fingerprint,
    generate_answers,
    read_answers,
    wanted_answers,
)
from dspark.types import SamplingParams
from dspark.workload.prompts import PromptSpec, load_prompts
from tests.training.lessons_tools import load

SETTINGS = AnswerSettings(
    temperatures=(0.0, 0.8, 0.8), top_p=1.0, max_new_tokens=6, batch_size=4, max_prompt_tokens=None, seed=3
)


@pytest.fixture(scope="module")
def target(tiny_llama: Path):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def chats():
    return {f"builtin/{p.id}": p for p in load_prompts(PromptSpec(num_requests=3, max_prompt_chars=120))}


@pytest.fixture(scope="module")
def prompts(target, chats):
    return encoded_prompts(target, chats, SETTINGS)


def test_greedy_answers_are_what_the_engine_generates(target, chats, prompts, tmp_path: Path) -> None:
    generate_answers(target, prompts, SETTINGS, tmp_path)
    answers = {answer.id: answer for answer in read_answers(tmp_path)}
    assert set(answers) == {f"{key}#{name}" for key in prompts for name in ("T0-0", "T0.8-0", "T0.8-1")}
    messages = [[{"role": "user", "content": chat.messages[0].content}] for chat in chats.values()]
    done = Engine(target).generate(messages, SamplingParams(max_new_tokens=6))
    for key, completion in zip(prompts, done, strict=True):
        answer = answers[f"{key}#T0-0"]
        assert (answer.prompt_ids, answer.token_ids) == (completion.prompt_ids, completion.token_ids)
        assert answer.temperature == 0
        assert (answer.prompt_key, answer.source) == (key, "builtin")
        assert answers[f"{key}#T0.8-0"].token_ids != answers[f"{key}#T0.8-1"].token_ids


def test_an_interrupted_generation_gives_the_same_answers(target, prompts, tmp_path: Path) -> None:
    generate_answers(target, prompts, SETTINGS, tmp_path / "whole")
    seen: list[Answer] = []

    def stop_after_three(answer: Answer) -> None:
        seen.append(answer)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_answers(target, prompts, SETTINGS, tmp_path / "cut", stop_after_three)
    with (tmp_path / "cut" / FILE).open("a") as file:
        file.write('{"id": "torn')
    again: list[Answer] = []
    generate_answers(target, prompts, SETTINGS, tmp_path / "cut", again.append)
    assert len(again) == 9 - 3
    cut = read_answers(tmp_path / "cut")
    assert cut[:3] == seen
    by_id = sorted(cut, key=lambda answer: answer.id)
    assert by_id == sorted(read_answers(tmp_path / "whole"), key=lambda answer: answer.id)
    generate_answers(target, prompts, SETTINGS, tmp_path / "cut", again.append)
    assert len(again) == 9 - 3, "everything was there"


def test_any_beginning_holds_every_temperature() -> None:
    keys = [f"s/{i}" for i in range(30)]
    wanted = wanted_answers(keys, SETTINGS)
    assert len(wanted) == len({name for name, _, _ in wanted}) == 90
    for turn in range(3):
        part = wanted[30 * turn : 30 * turn + 30]
        assert sorted(key for _, key, _ in part) == sorted(keys)
        # neighbours differ: 10 of 30 at 0, 20 at 0.8
        assert Counter(temperature for _, _, temperature in part) == {0.0: 10, 0.8: 20}


def test_temperatures_may_be_added_later() -> None:
    before = {name for name, _, _ in wanted_answers(["s/1"], SETTINGS)}
    more = replace(SETTINGS, temperatures=(0.0, 0.8, 0.8, 1.0, 0.8))
    assert {name for name, _, _ in wanted_answers(["s/1"], more)} - before == {"s/1#T1-0", "s/1#T0.8-2"}


def test_other_settings_or_another_target_need_another_folder(
    target, prompts, tiny_llama_drafter: Path, tmp_path: Path
) -> None:
    generate_answers(target, prompts, replace(SETTINGS, temperatures=(0.0,)), tmp_path)
    with pytest.raises(ValueError, match="were made with max_new_tokens=6, got 7: give the same settings"):
        generate_answers(target, prompts, replace(SETTINGS, max_new_tokens=7), tmp_path)
    other = load(tiny_llama_drafter)  # the same shapes, other weights
    assert fingerprint(other) != fingerprint(target) == fingerprint(target)
    with pytest.raises(ValueError, match="were made with target="):
        generate_answers(other, prompts, SETTINGS, tmp_path)
    check_answers(tmp_path, target)
    with pytest.raises(ValueError, match="are those of tiny-llama, not of tiny-llama-drafter"):
        check_answers(tmp_path, other)
    with pytest.raises(ValueError, match="no answers in .*: run the stage `answers` first"):
        check_answers(tmp_path / "nowhere", target)


def test_prompts_that_are_too_long_are_left_out_and_told(
    target, chats, prompts, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = sorted(map(len, prompts.values()))
    assert lengths[0] < lengths[-1]
    with caplog.at_level("INFO"):
        kept = encoded_prompts(target, chats, replace(SETTINGS, max_prompt_tokens=lengths[-1] - 1))
    assert kept == {key: ids for key, ids in prompts.items() if len(ids) < lengths[-1]}
    assert f"1 of 3 prompts have more than {lengths[-1] - 1} tokens" in caplog.text
    # the context is 512 tokens
    with pytest.raises(
        ValueError, match="no prompt has at most 2 tokens: raise answers.max_prompt_tokens, or"
    ):
        encoded_prompts(target, chats, replace(SETTINGS, max_new_tokens=510))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperatures": ()}, "temperatures must list at least one"),
        ({"temperatures": (0.0, 1.0, 0.0)}, "temperatures must list 0 once"),
        ({"temperatures": (-1.0,)}, "temperature must be >= 0"),
        ({"top_p": 0.0}, "top_p must be in"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens must be >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"max_new_tokens": 1}, "max_new_tokens must be >= 2, got 1"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
    ],
)
def test_settings_out_of_range(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **change)
