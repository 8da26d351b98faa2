"""Lessons on disk: computed once, read in every epoch.

A token takes (n + 1) * d * 2 + 4 bytes: features and the answer's hidden states in bfloat16, the
normaliser in float32. ``lessons.bin`` holds one record after another, ``lessons.jsonl`` where each
lies; a record counts once its line is whole, so a stopped run goes on where it was.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dspark.metrics.trace import JsonlWriter, drop_torn_line, read_jsonl
from dspark.training.answers import fingerprint
from dspark.training.claim import claimed
from dspark.training.lessons import Lesson, TargetTeacher, pass_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from dspark.training.answers import Answer


class StoredTeacher:
    """Lessons of a teacher, kept in a folder.

    Args:
        teacher: computes what is not there yet.
        folder: of the answers; the lessons lie in a subfolder named by target and layers.
        layers: the teacher's.
    """

    def __init__(self, teacher: TargetTeacher, folder: Path, layers: tuple[int, ...]) -> None:
        key = f"{fingerprint(teacher.target)} {layers} {teacher.target.dtype}"
        self.folder = folder / f"lessons-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        self._teacher = teacher
        self._width = teacher.head.shape[1]
        self._num_layers = len(layers)
        self._index: dict[str, dict[str, Any]] = {}
        self._read_index()
        self._end: int | None = None  # of the records, once this process writes
        self._records: np.ndarray | None = None

    def fill(self, answers: Sequence[Answer], on_lesson: Callable[[int], None] = lambda tokens: None) -> None:
        """Compute and keep the lessons that are not there; ``on_lesson`` is told the tokens of each.

        Raises:
            ValueError: another process is writing lessons there.
        """
        missing = [answer for answer in answers if not self._has(answer)]
        if not missing:
            return
        with claimed(self.folder):
            self._read_index()  # what another process has written since
            self._fill([answer for answer in missing if not self._has(answer)], on_lesson)

    def _fill(self, missing: list[Answer], on_lesson: Callable[[int], None]) -> None:
        missing.sort(key=lambda answer: answer.prompt_key)  # answers to one prompt share a pass
        for group in pass_groups(missing):
            for lesson in self._teacher.lessons(group):
                self.keep(lesson)
                on_lesson(len(lesson.features))

    def keep(self, lesson: Lesson) -> None:
        """Write a lesson that is not there yet: its record, and then the line that makes it count.

        The folder must be claimed by this process.
        """
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
        start = self._end
        if start is None:
            drop_torn_line(self.folder / "lessons.jsonl")
            start = max((entry["end"] for entry in self._index.values()), default=0)
        path = self.folder / "lessons.bin"
        path.touch()
        with path.open("r+b") as records:
            records.truncate(start)  # a record whose line was not written
            records.seek(start)
            end = start + sum(records.write(part) for part in _as_bytes(lesson))
        entry = {
            "id": lesson.answer.id,
            "tokens": _digest(lesson.answer),
            "length": len(lesson.features),
            "num_prompt": lesson.num_prompt,
            "start": start,
            "end": end,
        }
        with JsonlWriter(self.folder / "lessons.jsonl") as index:
            index.write(entry)
        self._index[lesson.answer.id] = entry
        self._end = end
        self._records = None

    def lessons(self, answers: Sequence[Answer]) -> list[Lesson]:
        """One an answer, in order, as float32; :meth:`fill` must have seen them."""
        return [self._read(answer) for answer in answers]

    def _read_index(self) -> None:
        self._index = {
            entry["id"]: entry for entry in read_jsonl(self.folder / "lessons.jsonl") if "tokens" in entry
        }

    def _has(self, answer: Answer) -> bool:
        entry = self._index.get(answer.id)
        return entry is not None and entry["tokens"] == _digest(answer)

    def _read(self, answer: Answer) -> Lesson:
        if not self._has(answer):
            self._read_index()  # another process has written it
        if self._records is None:
            self._records = np.memmap(self.folder / "lessons.bin", dtype=np.uint8, mode="r")
        entry = self._index[answer.id]
        num_features = entry["length"] * self._num_layers * self._width
        num_positions = entry["length"] - entry["num_prompt"] - 1
        # copied, because torch has no tensors that are read only
        record = np.array(self._records[entry["start"] : entry["end"]])
        values = torch.from_numpy(record)
        features, rest = values[: 2 * num_features], values[2 * num_features :]
        hidden, norms = rest[: 2 * num_positions * self._width], rest[2 * num_positions * self._width :]
        return Lesson(
            answer=answer,
            features=_from_bytes(features, torch.bfloat16).view(entry["length"], -1),
            hidden=_from_bytes(hidden, torch.bfloat16).view(num_positions, self._width),
            log_normaliser=_from_bytes(norms, torch.float32),
        )


def _digest(answer: Answer) -> str:
    """Tells texts of the same id apart."""
    return hashlib.sha256(repr((answer.prompt_ids, answer.token_ids)).encode()).hexdigest()[:16]


def _as_bytes(lesson: Lesson) -> list[bytes]:
    """The record's three parts."""
    parts = (lesson.features.bfloat16(), lesson.hidden.bfloat16(), lesson.log_normaliser.float())
    return [part.cpu().contiguous().view(torch.uint8).numpy().tobytes() for part in parts]


def _from_bytes(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.clone().view(dtype).float()
