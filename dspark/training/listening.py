"""Lessons heard while the target answers, so that its passes over an answer are not run a second time.

An answer's law and features are all there when it is generated. A target that listens to itself keeps
them, slot by slot, until the answer is asked for; a second pass over the answers would cost as much as
generating them did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from dspark.models.target import HFTarget
from dspark.training.lessons import Lesson, TargetTeacher

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.models.base import PassRow
    from dspark.models.kv_cache import KVCache
    from dspark.training.answers import Answer


@dataclass(slots=True)
class _Heard:
    """What a slot's row said so far, a part a pass."""

    token_ids: list[int] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)  # of each pass's tokens
    num_silent: int = 0  # first tokens without logits
    hidden: list[Tensor] = field(default_factory=list)  # of the tokens with logits
    log_normaliser: list[Tensor] = field(default_factory=list)


class ListeningTarget(HFTarget):
    """A target as it is, which remembers what :class:`~dspark.training.lessons.TargetTeacher` would compute.

    It runs rows without drafts: every pass goes on where the row's last one ended, or starts it anew.

    Args:
        teacher: of the target and the layers whose outputs are features.
    """

    def __init__(self, teacher: TargetTeacher) -> None:
        for name, value in vars(teacher.target).items():  # shared, not loaded or probed again
            setattr(self, name, value)
        self._teacher = teacher
        self._rows: dict[int, _Heard] = {}

    @torch.inference_mode()
    def forward(self, rows: list[PassRow], cache: KVCache) -> Tensor:
        """The target's logits; see :meth:`~dspark.models.base.Target.forward`."""
        logits, features, hidden = self._teacher.heard(rows, cache)
        normaliser = logits.logsumexp(-1)
        counts = [len(row.token_ids) for row in rows]
        parts = zip(
            rows,
            features.bfloat16().split(counts),
            hidden.split(counts),
            normaliser.split([row.num_logits for row in rows]),
            strict=True,
        )
        for row, of_tokens, states, norms in parts:
            heard = self._heard_before(row)
            heard.token_ids.extend(row.token_ids)
            heard.features.append(of_tokens.clone())
            num_silent = len(row.token_ids) - row.num_logits
            if not heard.hidden:
                heard.num_silent += num_silent
            elif num_silent:
                raise AssertionError("a row that gave logits is asked for some of all its tokens")
            if row.num_logits:
                heard.hidden.append(states[num_silent:].bfloat16())
                heard.log_normaliser.append(norms.clone())
        return logits

    def lesson(self, answer: Answer) -> Lesson:
        """What was heard of an answer whose slot has no new row yet.

        Features and hidden states are bfloat16, as they are kept; the features of the last token, which
        the target never read, are zeros.

        Raises:
            KeyError: no slot holds the answer.
        """
        read = [*answer.prompt_ids, *answer.token_ids][:-1]
        slot = next((slot for slot, heard in self._rows.items() if heard.token_ids == read), None)
        if slot is None:
            raise KeyError(f"the answer {answer.id} was not heard: it did not just end, or drafts were run")
        heard = self._rows[slot]  # stays until its slot has another row: one in step may say the same so far
        features = torch.cat(heard.features)
        skipped = len(answer.prompt_ids) - heard.num_silent  # positions before the answer's first token
        return Lesson(
            answer=answer,
            features=torch.cat([features, torch.zeros_like(features[:1])]),
            hidden=torch.cat(heard.hidden)[skipped:],
            log_normaliser=torch.cat(heard.log_normaliser)[skipped:],
        )

    def _heard_before(self, row: PassRow) -> _Heard:
        """The slot's row, a new one where the pass starts it."""
        if row.start == 0:
            self._rows[row.slot] = _Heard()
        heard = self._rows[row.slot]
        if len(heard.token_ids) != row.start:
            raise AssertionError(
                f"the pass starts at {row.start}, and {len(heard.token_ids)} tokens were heard"
            )
        return heard
