"""Answer lines hold what the run's files say, a request at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dspark.analysis.export.answers import Answer, read_answers
from dspark.analysis.export.questions import Question, read_questions
from dspark.analysis.export.spec_bench import answer_lines, notes

WORKLOAD: dict[str, Any] = {"path": None, "domains": None, "column": None, "system": None}


def _step(wall_s: float, emitted: Mapping[str, int] | None = None, **other: Any) -> dict[str, Any]:
    """A line of steps.jsonl; ``emitted`` has the decode rows."""
    rows = emitted or {}
    named = {"request_id": list(rows), "emitted": list(rows.values())}
    usual = {"attempt": 0, "num_prefill_rows": 0, "tokens": {name: [7] for name in rows}}
    return {"cell": "run", "wall_s": wall_s, "rows": named, **usual, **other}


def _output(request_id: str, num_tokens: int, **other: Any) -> dict[str, Any]:
    usual = {"cell": "run", "attempt": 0, "latency_s": 99.0, "ttft_s": 9.0, "text": f" {request_id}!\n"}
    return {"request_id": request_id, "token_ids": [7] * num_tokens, **usual, **other}


def _written(run: Path, steps: Sequence[object], outputs: Sequence[object]) -> Path:
    for name, items in (("steps", steps), ("outputs", outputs)):
        (run / f"{name}.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))
    return run


def _prompt(wall_s: float, request_id: str | None = None, **other: Any) -> dict[str, Any]:
    """A step with a chunk of a prompt; the last chunk names its request, whose first token it gives."""
    tokens = {} if request_id is None else {request_id: [7]}
    return _step(wall_s, num_prefill_rows=1, tokens=tokens, **other)


class TestAnswers:
    def test_seconds_are_those_of_a_requests_own_steps(self, tmp_path: Path) -> None:
        steps = [
            *(_prompt(1.0), _prompt(2.0, "a"), _step(4.0, {"a": 3}), _step(8.0, {"a": 1})),
            *(_prompt(16.0, "b"), _step(32.0, {"b": 2})),
        ]
        a, b = read_answers(_written(tmp_path, steps, [_output("a", 5), _output("b", 3)]))
        # the latency of b would count the steps of a, which it waited for
        assert (a.wall_s, b.wall_s) == (15.0, 48.0)
        assert (a.emitted, b.emitted) == ((3, 1), (2,))
        # a request's first token is of its prefill, which is no round
        assert (a.num_tokens, b.num_tokens) == (1 + 3 + 1, 1 + 2)

    def test_a_request_that_was_interrupted_counts_once(self, tmp_path: Path) -> None:
        steps = [
            *(_prompt(1.0, "a"), _step(2.0, {"a": 2}), _prompt(4.0)),
            *(_prompt(8.0, "a", attempt=1), _step(16.0, {"a": 3}, attempt=1)),
        ]
        (a,) = read_answers(_written(tmp_path, steps, [_output("a", 4, attempt=1)]))
        assert (a.wall_s, a.emitted) == (24.0, (3,))

    @pytest.mark.parametrize(
        ("steps", "outputs", "message"),
        [
            ([_step(1.0, {"a": 1, "b": 1})], [_output("a", 2)], "got a step of 2 rows"),
            ([_step(1.0, {"a": 1}, num_prefill_rows=1)], [_output("a", 2)], "engine.max_batch_size=1"),
            ([], [_output("a", 2), _output("a", 2, cell="other")], "holds 2 cells"),
            ([], [_output("a", 2, modelled_latency_s=1.0)], "are a cost model's"),
        ],
    )
    def test_runs_whose_seconds_mean_nothing_are_refused(
        self, tmp_path: Path, steps: list[object], outputs: list[object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            read_answers(_written(tmp_path, steps, outputs))

    def test_other_folders_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"has no outputs\.jsonl: give the folder of a `dspark run`"):
            read_answers(tmp_path)


class TestQuestions:
    def test_a_question_file_says_number_and_category(self, tmp_path: Path) -> None:
        lines = [
            {"question_id": 81, "category": "writing", "turns": ["one", "two"]},
            {"question_id": 161, "category": "qa", "turns": ["three"], "id": "mine"},
            {"prompt": "four"},
        ]
        path = tmp_path / "question.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        assert read_questions({**WORKLOAD, "path": str(path)}) == {
            "question-1": Question(question_id=81, category="writing", num_unused_turns=1),
            "mine": Question(question_id=161, category="qa", num_unused_turns=0),
            "question-3": Question(question_id=3, category="question", num_unused_turns=0),
        }

    def test_the_prompts_of_the_package_have_their_place_and_domain(self) -> None:
        found = read_questions(WORKLOAD)
        assert found["math-01"] == Question(question_id=1, category="math", num_unused_turns=0)
        assert {question.category for question in found.values()} == {"math", "code", "chat"}
        assert sorted(q.question_id for q in found.values()) == list(range(1, len(found) + 1))

    def test_numbers_must_differ(self, tmp_path: Path) -> None:
        path = tmp_path / "question.jsonl"
        path.write_text('{"question_id": 2, "prompt": "a"}\n{"prompt": "b"}\n')
        with pytest.raises(ValueError, match="question_id must be unique, got 2 twice"):
            read_questions({**WORKLOAD, "path": str(path)})

    def test_a_data_set_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="a JSONL file, got the data set"):
            read_questions({**WORKLOAD, "path": str(tmp_path)})


class TestLines:
    ANSWERS = (
        Answer(request_id="b", text=" B\n", num_tokens=4, emitted=(2, 1), wall_s=2.0),
        Answer(request_id="a", text="A", num_tokens=1, emitted=(), wall_s=0.5),
    )
    QUESTIONS: Mapping[str, Question] = {
        "a": Question(question_id=81, category="writing", num_unused_turns=1),
        "b": Question(question_id=170, category="own", num_unused_turns=0),
        "c": Question(question_id=171, category="qa", num_unused_turns=3),
    }

    def test_lines_are_sorted_and_hold_every_field(self) -> None:
        first, second = answer_lines(self.ANSWERS, self.QUESTIONS, model_id="m", answered_at_s=5.0)
        assert second.pop("answer_id") != first.pop("answer_id")
        assert first["choices"][0]["accept_lengths"] == []
        assert second == {
            "question_id": 170,
            "category": "own",
            "model_id": "m",
            "choices": [
                {
                    "index": 0,
                    "turns": ["B"],
                    "decoding_steps": [2],
                    "new_tokens": [4],
                    "wall_time": [2.0],
                    "accept_lengths": [2, 1],
                }
            ],
            "tstamp": 5.0,
        }

    def test_the_same_run_gives_the_same_lines(self) -> None:
        once, again = (
            answer_lines(self.ANSWERS, self.QUESTIONS, model_id="m", answered_at_s=5.0) for _ in range(2)
        )
        assert once == again

    def test_notes_say_what_spec_bench_will_not_see(self) -> None:
        lines = answer_lines(self.ANSWERS, self.QUESTIONS, model_id="m", answered_at_s=5.0)
        assert notes(lines, self.QUESTIONS) == [
            "1 of 2 questions have later turns, which `dspark run` leaves out",
            "Spec-Bench counts the categories own in `overall` only",
        ]
        assert notes(lines[:0], self.QUESTIONS) == []

    def test_answers_without_question_and_no_answers_are_refused(self) -> None:
        with pytest.raises(ValueError, match="the prompts hold no question 'b'"):
            answer_lines(self.ANSWERS, {}, model_id="m", answered_at_s=5.0)
        with pytest.raises(ValueError, match="the run answered no question"):
            answer_lines([], self.QUESTIONS, model_id="m", answered_at_s=5.0)
