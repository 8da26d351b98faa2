"""Spec-Bench's answer lines: a JSON object a question, as its scripts for speed and equality read.

``{"question_id", "category", "answer_id", "model_id", "choices": [{"index", "turns",
"decoding_steps", "new_tokens", "wall_time", "accept_lengths"}], "tstamp"}``, sorted by question.
Its #Mean accepted tokens is the mean of all ``accept_lengths``, its tokens/s the mean over
questions of Σ new_tokens / Σ wall_time (https://github.com/hemingkx/Spec-Bench, evaluation/eval.py
and speed.py). A choice has one turn here: `dspark run` answers the first turn of a question.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dspark.analysis.export.answers import Answer
    from dspark.analysis.export.questions import Question

SUBTASKS = frozenset(
    {
        *("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"),
        *("translation", "summarization", "qa", "math_reasoning", "rag"),
    }
)
"""Categories that Spec-Bench sums up; the first eight are its mt_bench."""


def answer_lines(
    answers: Iterable[Answer], questions: Mapping[str, Question], *, model_id: str, answered_at_s: float
) -> list[dict[str, Any]]:
    """The lines of the file ``<model_id>.jsonl``, in the order of their ``question_id``.

    Args:
        answers: of a run at batch size 1.
        questions: by request id.
        model_id: the name under which Spec-Bench shows them.
        answered_at_s: when the run started, in seconds since 1970.

    Raises:
        ValueError: there is no answer, or one to no question.
    """
    lines = []
    for answer in answers:
        question = questions.get(answer.request_id)
        if question is None:
            raise ValueError(
                f"the prompts hold no question {answer.request_id!r}, which the run answered: "
                "put back the prompt file of the run"
            )
        name = f"{model_id}/{question.question_id}"
        lines.append(
            {
                "question_id": question.question_id,
                "category": question.category,
                # stable, where Spec-Bench draws one: the same run gives the same file
                "answer_id": hashlib.sha256(name.encode()).hexdigest()[:22],
                "model_id": model_id,
                "choices": [_choice(answer)],
                "tstamp": answered_at_s,
            }
        )
    if not lines:
        raise ValueError("the run answered no question: resume it with resume=true")
    return sorted(lines, key=lambda line: line["question_id"])


def notes(lines: Sequence[Mapping[str, Any]], questions: Mapping[str, Question]) -> list[str]:
    """What to know beside the lines, a line each."""
    found = []
    answered = {line["question_id"] for line in lines}
    num_cut = sum(q.num_unused_turns > 0 for q in questions.values() if q.question_id in answered)
    if num_cut:
        found.append(f"{num_cut} of {len(lines)} questions have later turns, which `dspark run` leaves out")
    others = sorted({line["category"] for line in lines} - SUBTASKS)
    if others:
        found.append(f"Spec-Bench counts the categories {', '.join(others)} in `overall` only")
    return found


def _choice(answer: Answer) -> dict[str, Any]:
    """The one choice of an answer; a list holds an entry a turn, except the rounds' lengths."""
    return {
        "index": 0,
        "turns": [answer.text.strip()],  # as Spec-Bench compares them
        "decoding_steps": [len(answer.emitted)],
        "new_tokens": [answer.num_tokens],
        "wall_time": [answer.wall_s],
        "accept_lengths": list(answer.emitted),
    }
