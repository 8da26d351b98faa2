"""What the target knows about an answer: features of its tokens, and the law of each of its next tokens.

The law over a whole vocabulary would fill a disk. What is kept of a position is the hidden state that
the output head reads and the logarithm of the law's normaliser, from which the law over any choice of
tokens is one small matrix product away.

Shapes: ``T`` tokens of prompt and answer, ``P`` of the prompt, ``L`` = T - P - 1 positions of the
answer that have a token behind them, ``n`` feature layers, ``d`` hidden size, ``V`` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from dspark.models.base import PassRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dspark.models.target import HFTarget
    from dspark.training.answers import Answer

PASS_TOKENS, PASS_ROWS = 768, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """An answer with what the target knows about it."""

    answer: Answer
    features: Tensor  # [T, n * d]
    hidden: Tensor  # [L, d], of positions P to T - 2, as the output head reads them
    log_normaliser: Tensor  # float32 [L]: logsumexp of the position's logits over the vocabulary

    @property
    def token_ids(self) -> Tensor:
        """Int [T]."""
        return torch.tensor([*self.answer.prompt_ids, *self.answer.token_ids])

    @property
    def num_prompt(self) -> int:
        """P."""
        return len(self.answer.prompt_ids)


class Teacher(Protocol):
    """Where lessons come from."""

    def lessons(self, answers: Sequence[Answer]) -> list[Lesson]:
        """One an answer, in order."""
        ...


class TargetTeacher:
    """The target itself, in one pass over a few answers at a time.

    Args:
        target: whose answers they are.
        layers: whose outputs are features; not the last, whose output the head's norm changes.

    Raises:
        ValueError: a layer that the target lacks, or an output head that is more than a matrix product.
    """

    def __init__(self, target: HFTarget, layers: tuple[int, ...]) -> None:
        self.target = target
        self._last = target.cache_shape.num_layers - 1
        if self._last in layers:
            raise ValueError(
                f"draft.feature_layers must lie below the target's last layer, {self._last}, whose output "
                f"the final norm changes, got {list(layers)}"
            )
        self._layers = layers
        self._check_head()

    @property
    def head(self) -> Tensor:
        """The output head's weight [V, d]."""
        return self.target.model.get_output_embeddings().weight

    def lessons(self, answers: Sequence[Answer]) -> list[Lesson]:
        """One an answer, in order."""
        return [lesson for group in pass_groups(answers) for lesson in self._pass(group)]

    def _pass(self, answers: Sequence[Answer]) -> Iterator[Lesson]:
        rows = [
            PassRow(
                slot=slot,
                start=0,
                token_ids=[*answer.prompt_ids, *answer.token_ids],
                num_logits=len(answer.token_ids),
            )
            for slot, answer in enumerate(answers)
        ]
        out, hidden, normaliser = self._forward(rows)
        width = self.target.model.config.get_text_config().hidden_size * len(self._layers)
        counts = [len(row.token_ids) for row in rows]
        parts = zip(
            answers,
            out[:, :width].split(counts),
            hidden.split(counts),
            normaliser.split([row.num_logits for row in rows]),
            strict=True,
        )
        for answer, features, states, norms in parts:
            # copies, made outside of inference mode: gradients are computed from them
            yield Lesson(
                answer=answer,
                features=features.clone(),
                hidden=states[len(answer.prompt_ids) : -1].clone(),
                log_normaliser=norms[:-1].clone(),
            )

    @torch.inference_mode()
    def _forward(self, rows: list[PassRow]) -> tuple[Tensor, Tensor, Tensor]:
        """Layers' outputs, what the head reads, and the logits' normalisers, of all rows' tokens."""
        cache = self.target.new_cache(len(rows), max(len(row.token_ids) for row in rows))
        logits, out = self.target.forward_with_features(rows, cache, (*self._layers, self._last))
        last = out[:, -self.head.shape[1] :]
        return out, self._normed(last), logits.logsumexp(-1)

    def _normed(self, out: Tensor) -> Tensor:
        return self.target.model.get_decoder().norm(out.to(self.target.dtype)).float()

    @torch.inference_mode()
    def _check_head(self) -> None:
        """Raises if logits are not the head's rows times the normed output of the last layer."""
        cache = self.target.new_cache(1, 4)
        row = PassRow(slot=0, start=0, token_ids=[1, 2, 3], num_logits=3)
        logits, out = self.target.forward_with_features([row], cache, (self._last,))
        product = self._normed(out) @ self.head.float().T
        tolerance = 1e-3 if self.target.dtype == torch.float32 else 0.1
        if float((product - logits).abs().max()) > tolerance * float(logits.abs().max()):
            raise ValueError(
                f"the output head of {self.target.name} is more than a matrix product (a soft cap, a scale "
                "or a bias), and no drafter can be trained for it yet: use another target"
            )


def pass_groups(answers: Sequence[Answer]) -> Iterator[list[Answer]]:
    """The answers in groups of at most ``PASS_ROWS`` and about ``PASS_TOKENS`` tokens, in order."""
    group: list[Answer] = []
    tokens = 0
    for answer in answers:
        length = len(answer.prompt_ids) + len(answer.token_ids)
        if group and (tokens + length > PASS_TOKENS or len(group) == PASS_ROWS):
            yield group
            group, tokens = [], 0
        group.append(answer)
        tokens += length
    if group:
        yield group
