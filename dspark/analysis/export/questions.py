"""The questions behind a run's requests: number and category, as the prompt file has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark.workload.records import num_unused_turns, prompt_of
from dspark.workload.sources import DOMAINS, builtin_records, jsonl_path, jsonl_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark.workload.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What Spec-Bench knows a question by."""

    question_id: int
    category: str
    num_unused_turns: int  # turns after the first, which runs leave out


def read_questions(workload: Mapping[str, Any]) -> dict[str, Question]:
    """The questions of a run's prompts by request id.

    A record's own ``question_id`` and ``category`` are taken, as Spec-Bench's question.jsonl has
    them; where there are none, its place in the file, from 1, and its domain.

    Args:
        workload: the section of that name of the run's configuration.

    Raises:
        ValueError: the prompts cannot be read, come from a data set, or share a ``question_id``.
    """
    column, system = workload["column"], workload["system"]
    found: dict[str, Question] = {}
    for place, record in enumerate(_records(workload), start=1):
        prompt = prompt_of(record, column=column, system=system)
        number, category = (record.fields.get(name) for name in ("question_id", "category"))
        found[prompt.id] = Question(
            question_id=number if type(number) is int else place,
            category=category if isinstance(category, str) and category else prompt.domain,
            num_unused_turns=num_unused_turns(record, column),
        )
    numbers = [question.question_id for question in found.values()]
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise ValueError(f"question_id must be unique, got {twice} twice: mend the prompt file")
    return found


def _records(workload: Mapping[str, Any]) -> list[Record]:
    path = workload["path"]
    if path is None:
        return builtin_records(tuple(workload["domains"] or DOMAINS))
    file = jsonl_path(path)
    if file is None:
        raise ValueError(
            f"the questions of Spec-Bench are a JSONL file, got the data set {path!r}: "
            "run with workload.path=question.jsonl"
        )
    return jsonl_records(file)
