"""Lessons say what the target's own forward says, in memory and from disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dspark.training.claim import claimed
from dspark.training.lesson_store import StoredTeacher
from dspark.training.lessons import PASS_ROWS, TargetTeacher, pass_groups
from tests.training.lessons_tools import answers_of, load

LAYERS = (-1, 0)


@pytest.fixture(scope="module")
def target(tiny_llama: Path):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def answers(target):
    return answers_of(target, count=5)


def test_laws_and_features_are_the_models_own(target, answers) -> None:
    teacher = TargetTeacher(target, LAYERS)
    for answer, lesson in zip(answers, teacher.lessons(answers), strict=True):
        ids = [*answer.prompt_ids, *answer.token_ids]
        num_prompt = len(answer.prompt_ids)
        assert lesson.features.shape[0] == len(ids)
        assert lesson.hidden.shape[0] == len(answer.token_ids) - 1
        # the law at position P + j, from a forward over the tokens up to there
        for j in (0, len(answer.token_ids) - 2):
            logits = target.eager_logits(torch.tensor([ids[: num_prompt + j + 1]], device=target.device))[0]
            law = torch.exp(lesson.hidden[j] @ teacher.head.float().T - lesson.log_normaliser[j])
            torch.testing.assert_close(law, torch.softmax(logits, -1), atol=1e-5, rtol=1e-4)
            assert int(law.argmax()) == answer.token_ids[j + 1], "a greedy answer follows the law's top"
        embedded = target.model.get_input_embeddings().weight[torch.tensor(ids, device=target.device)]
        torch.testing.assert_close(lesson.features[:, : embedded.shape[1]], embedded.float())


def test_lessons_do_not_depend_on_their_company(target, answers) -> None:
    teacher = TargetTeacher(target, LAYERS)
    together = teacher.lessons(answers)
    for answer, lesson in zip(answers, together, strict=True):
        (alone,) = teacher.lessons([answer])
        torch.testing.assert_close(lesson.features, alone.features, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(lesson.log_normaliser, alone.log_normaliser, atol=1e-5, rtol=1e-4)


def test_answers_to_one_prompt_share_it(target, answers, monkeypatch: pytest.MonkeyPatch) -> None:
    # the same prompt with three different answers, between answers to others
    one, other = answers[3], answers[4]
    variants = [
        replace(one, id=f"random/3#T1-{i}", token_ids=(*one.token_ids[:i], *other.token_ids[i:]))
        for i in (1, 4)
    ]
    mixed = [other, one, variants[0], answers[0], variants[1]]
    teacher = TargetTeacher(target, LAYERS)
    num_tokens: list[int] = []
    forward = target.forward_with_features

    def counted(rows, cache, layers):
        num_tokens.append(sum(len(row.token_ids) for row in rows))
        return forward(rows, cache, layers)

    monkeypatch.setattr(target, "forward_with_features", counted)
    together = teacher.lessons(mixed)
    assert num_tokens == [
        sum(len(answer.prompt_ids) for answer in (other, one, answers[0])),
        sum(len(answer.token_ids) for answer in mixed),
    ]
    for answer, lesson in zip(mixed, together, strict=True):
        (alone,) = teacher.lessons([answer])
        for name in ("features", "hidden", "log_normaliser"):
            torch.testing.assert_close(getattr(lesson, name), getattr(alone, name), atol=1e-5, rtol=1e-4)


def test_stored_lessons_are_the_same_to_bfloat16(target, answers, tmp_path: Path) -> None:
    teacher = TargetTeacher(target, LAYERS)
    told: list[int] = []
    stored = StoredTeacher(teacher, tmp_path, LAYERS)
    stored.fill(answers[:3], told.append)
    assert told == [len(a.prompt_ids) + len(a.token_ids) for a in answers[:3]]  # ids ascend
    with (stored.folder / "lessons.bin").open("ab") as file:
        file.write(b"half of a record")
    with (stored.folder / "lessons.jsonl").open("a") as file:
        file.write('{"id": "torn')
    again = StoredTeacher(teacher, tmp_path, LAYERS)
    again.fill(answers, told.append)
    assert len(told) == len(answers), "what was there was computed again"
    # n + 1 widths of 2 bytes for tokens with features, 4 bytes a law
    width = teacher.head.shape[1]
    expected = sum(
        2 * width * (2 * (len(a.prompt_ids) + len(a.token_ids)) + len(a.token_ids) - 1)
        + 4 * (len(a.token_ids) - 1)
        for a in answers
    )
    assert (again.folder / "lessons.bin").stat().st_size == expected
    for one, other in zip(again.lessons(answers), teacher.lessons(answers), strict=True):
        assert torch.equal(one.features, other.features.bfloat16().float())
        assert torch.equal(one.hidden, other.hidden.bfloat16().float())
        torch.testing.assert_close(one.log_normaliser, other.log_normaliser, atol=1e-5, rtol=1e-5)


def test_other_layers_have_a_folder_of_their_own(target, tmp_path: Path) -> None:
    folders = {
        StoredTeacher(TargetTeacher(target, layers), tmp_path, layers).folder for layers in ((0,), (-1,))
    }
    assert len(folders) == 2


def test_the_last_layer_is_no_feature(target) -> None:
    with pytest.raises(ValueError, match="must lie below the target's last layer, 1, .* got \\[0, 1\\]"):
        TargetTeacher(target, (0, 1))


def test_a_soft_cap_on_the_logits_is_noticed(tiny_gemma2: Path) -> None:
    with pytest.raises(ValueError, match="is more than a matrix product"):
        TargetTeacher(load(tiny_gemma2), (0,))


def test_groups_keep_the_order_and_their_limits(answers) -> None:
    many = answers * 12
    groups = list(pass_groups(many))
    assert [answer for group in groups for answer in group] == many
    assert max(map(len, groups)) == PASS_ROWS


def test_another_text_under_the_same_id_is_computed_again(target, answers, tmp_path: Path) -> None:
    teacher = TargetTeacher(target, LAYERS)
    first = answers[0]
    StoredTeacher(teacher, tmp_path, LAYERS).fill([first])
    other = replace(first, token_ids=tuple(reversed(first.token_ids)))
    assert len(other.token_ids) == len(first.token_ids)
    told: list[int] = []
    stored = StoredTeacher(teacher, tmp_path, LAYERS)
    stored.fill([other], told.append)
    assert len(told) == 1
    (lesson,) = stored.lessons([other])
    (computed,) = teacher.lessons([other])
    torch.testing.assert_close(lesson.hidden, computed.hidden.bfloat16().float())


def test_one_process_at_a_time_writes_lessons(target, answers, tmp_path: Path) -> None:
    stored = StoredTeacher(TargetTeacher(target, LAYERS), tmp_path, LAYERS)
    with claimed(stored.folder), pytest.raises(ValueError, match="another process is writing to .*lessons-"):
        stored.fill(answers[:1])
    stored.fill(answers[:1])
    with claimed(stored.folder):
        stored.fill(answers[:1])  # nothing is missing, so nothing is written
