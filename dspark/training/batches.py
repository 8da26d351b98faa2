"""Several answers and the blocks drawn in them, as the tensors of one step.

Shapes: ``N`` tokens of all answers, one answer after another; ``A`` blocks; ``K`` drafts of a block.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dspark.training.anchors import labels_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.training.lessons import Lesson


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Lessons and blocks; the blocks of an answer lie together, in the answers' order."""

    lengths: tuple[int, ...]  # tokens of each answer with its prompt, N in all
    num_blocks: tuple[int, ...]  # of each answer, A in all
    token_ids: Tensor  # int [N]
    features: Tensor  # [N, n * d]
    anchors: Tensor  # int [A], positions in their answers
    previous: Tensor  # int [A, K], the token before each guessed one; the anchor's own first
    labels: Tensor  # int [A, K], 0 past the answer's end
    exists: Tensor  # bool [A, K]
    hidden: Tensor  # [A, K, d], what the target's head reads where the label comes next
    log_normaliser: Tensor  # [A, K]

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(self, **{key: x.to(device) for key, x in values.items() if isinstance(x, Tensor)})


def make_batch(lessons: Sequence[Lesson], anchors: Sequence[Tensor], num_drafts: int) -> Batch:
    """The batch of these lessons with blocks at these anchors.

    Args:
        lessons: of the answers.
        anchors: int [A_i], positions in each answer.
        num_drafts: K.
    """
    parts: dict[str, list[Tensor]] = {
        name: [] for name in ("previous", "labels", "exists", "hidden", "log_normaliser")
    }
    tokens = [lesson.token_ids for lesson in lessons]
    for lesson, token_ids, starts in zip(lessons, tokens, anchors, strict=True):
        labels, exists = labels_after(token_ids, starts, num_drafts)
        # the token at a + 1 + k comes next at a + k, which is row a + k - P of the lesson
        at = (starts[:, None] + torch.arange(num_drafts) - lesson.num_prompt).clamp(
            max=len(lesson.hidden) - 1
        )
        parts["previous"].append(torch.cat([token_ids[starts, None], labels[:, :-1]], 1))
        parts["labels"].append(labels)
        parts["exists"].append(exists)
        parts["hidden"].append(lesson.hidden[at])
        parts["log_normaliser"].append(lesson.log_normaliser[at])
    return Batch(
        lengths=tuple(map(len, tokens)),
        num_blocks=tuple(map(len, anchors)),
        token_ids=torch.cat(tokens),
        features=torch.cat([lesson.features for lesson in lessons]),
        anchors=torch.cat(list(anchors)),
        **{name: torch.cat(values) for name, values in parts.items()},
    )
