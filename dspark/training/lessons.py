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

    from dspark.models.kv_cache import KVCache
    from dspark.models.target import HFTarget
    from dspark.training.answers import Answer

PASS_TOKENS, PASS_ROWS = 768, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """An answer with what the target knows about it."""

    answer: Answer
    features: Tensor  # [T, n * d]; the last row, which nothing that is guessed comes after, may be zeros
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
    """The target itself, a few answers at a time; a prompt that several of them share is computed once.

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
        """A pass over the different prompts, and one over the answers behind them."""
        first: dict[tuple[int, ...], int] = {}  # the slot that a prompt is computed in
        for slot, answer in enumerate(answers):
            first.setdefault(answer.prompt_ids, slot)
        prompts = [
            PassRow(slot=slot, start=0, token_ids=list(ids), num_logits=0) for ids, slot in first.items()
        ]
        rows = [
            PassRow(
                slot=slot,
                start=len(answer.prompt_ids),
                token_ids=list(answer.token_ids),
                num_logits=len(answer.token_ids),
            )
            for slot, answer in enumerate(answers)
        ]
        ahead, out, hidden, normaliser = self._forward(prompts, rows, [first[a.prompt_ids] for a in answers])
        counts = [len(row.token_ids) for row in rows]
        of_prompt = dict(zip(first, ahead.split([len(row.token_ids) for row in prompts]), strict=True))
        parts = zip(answers, *(part.split(counts) for part in (out, hidden, normaliser)), strict=True)
        for answer, features, states, norms in parts:
            # copies, made outside of inference mode: gradients are computed from them
            yield Lesson(
                answer=answer,
                features=torch.cat([of_prompt[answer.prompt_ids], features]),
                hidden=states[:-1].clone(),
                log_normaliser=norms[:-1].clone(),
            )

    @torch.inference_mode()
    def _forward(
        self, prompts: list[PassRow], rows: list[PassRow], slots: list[int]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features of the prompts' tokens; features, what the head reads and normalisers of the rows'.

        Args:
            prompts: computed first, each in a slot of its own.
            rows: the answers.
            slots: for every row, the slot of its prompt.
        """
        longest = max(row.start + len(row.token_ids) for row in rows)
        cache = self.target.new_cache(len(rows), longest)
        for row in rows:
            has_room = cache.reserve(row.slot, longest)
            assert has_room, "a cache has room for all its rows"
        _, ahead = self.target.forward_with_features(prompts, cache, self._layers)
        for row, slot in zip(rows, slots, strict=True):
            if row.slot != slot:
                cache.copy_tokens(slot, row.slot, row.start)
        logits, features, hidden = self.heard(rows, cache)
        return ahead, features, hidden, logits.logsumexp(-1)

    def heard(self, rows: list[PassRow], cache: KVCache) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [M, V], features [N, n * d] and what the head reads [N, d], of a pass over rows."""
        logits, out = self.target.forward_with_features(rows, cache, (*self._layers, self._last))
        width = len(self._layers) * self.head.shape[1]
        return logits, out[:, :width], self._normed(out[:, width:])

    def _normed(self, out: Tensor) -> Tensor:
        return self.target.model.get_decoder().norm(out.to(self.target.dtype)).float()

    @torch.inference_mode()
    def _check_head(self) -> None:
        """Raises if logits are not the head's rows times the normed output of the last layer."""
        cache = self.target.new_cache(1, 4)
        cache.reserve(0, 4)
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
        shares = any(answer.prompt_ids == other.prompt_ids for other in group)
        length = len(answer.token_ids) + (0 if shares else len(answer.prompt_ids))
        if group and (tokens + length > PASS_TOKENS or len(group) == PASS_ROWS):
            yield group
            group, tokens, length = [], 0, len(answer.token_ids) + len(answer.prompt_ids)
        group.append(answer)
        tokens += length
    if group:
        yield group
