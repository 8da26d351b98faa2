"""Which answers are trained on and which are kept for evaluation."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.metrics.trace import write_json
from dspark.training.answers import read_answers
from dspark.training.sources import mixed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark.training.answers import Answer
    from dspark.training.settings import TrainSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Answers by their use; no prompt is on both sides."""

    training: tuple[Answer, ...]
    held_out: tuple[Answer, ...]  # at most num_eval_answers greedy ones, and as many drawn ones


def split_answers(answers: Sequence[Answer], settings: TrainSettings) -> Split:
    """The answers that have something to guess, divided by a hash of their prompts' records.

    The hash has no seed, so that a drafter which is trained further is never evaluated on what it has
    seen; a record that two sources wrap differently is on one side.

    Raises:
        ValueError: too few answers to have some on both sides.
    """
    usable = [answer for answer in answers[: settings.max_answers] if len(answer.token_ids) >= 2]
    is_held = {
        key: _share_of(key) < settings.held_out_share for key in {answer.prompt_key for answer in usable}
    }
    training = tuple(answer for answer in usable if not is_held[answer.prompt_key])
    left = {answer.id: answer for answer in usable if is_held[answer.prompt_key]}
    ordered = [left[name] for name in mixed(list(left), settings.seed)]
    greedy = [answer for answer in ordered if answer.temperature == 0]
    drawn = [answer for answer in ordered if answer.temperature > 0]
    num = settings.num_eval_answers
    held_out = (*greedy[:num], *drawn[:num])
    if not training or not held_out:
        raise ValueError(
            f"{len(usable)} answers of 2 tokens or more, {len(training)} to train on and {len(left)} to "
            "evaluate on: generate more, or change train.held_out_share"
        )
    return Split(training=training, held_out=held_out)


def answers_of_run(answers_folder: Path, run_folder: Path) -> list[Answer]:
    """The answers that were there when the run began, also where more have come since.

    The first call writes down which they are, in ``data.json`` of the run's folder.

    Raises:
        ValueError: they have changed.
    """
    answers = read_answers(answers_folder)
    path = run_folder / "data.json"
    if not path.is_file():
        write_json(path, {"schema": 1, "num_answers": len(answers), "sha256": _digest(answers)})
        return answers
    recorded = json.loads(path.read_text(encoding="utf-8"))
    answers = answers[: recorded["num_answers"]]
    if recorded["sha256"] != _digest(answers):
        raise ValueError(
            f"the answers in {answers_folder} are not those that the run in {run_folder} began with: "
            "bring them back, or start a new run"
        )
    return answers


def _digest(answers: Sequence[Answer]) -> str:
    code = hashlib.sha256()
    for answer in answers:
        code.update(repr((answer.id, answer.token_ids)).encode())
    return code.hexdigest()


def _share_of(key: str) -> float:
    """A number in [0, 1) that follows from the record's id, the part of the key behind the source."""
    code = hashlib.sha256(f"held out/{key.partition('/')[2]}".encode()).digest()
    return int.from_bytes(code[:8], "big") / 2**64
