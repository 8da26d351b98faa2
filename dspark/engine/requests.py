"""From what a user asks to what the engine runs: ids, seeds, limits, and the checks on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dspark.engine.sequence import Sequence as Row
from dspark.seeding import request_seed
from dspark.types import Request, SamplingParams
from dspark.verification.base import SampledRow

if TYPE_CHECKING:
    from dspark.models.target import HFTarget

Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]
"""A text (taken as it is), token ids, or chat messages (put through the chat template)."""


class RequestFactory:
    """Makes rows for one target.

    Args:
        target: gives vocabulary, context, end tokens and tokenizer.
        seed: requests without a seed derive theirs from it and their id.
        max_tokens_per_row: cached tokens a row may need, or None for the target's context.
    """

    def __init__(self, target: HFTarget, *, seed: int, max_tokens_per_row: int | None) -> None:
        if max_tokens_per_row is not None and not 2 <= max_tokens_per_row <= target.max_context:
            raise ValueError(
                f"max_tokens_per_row must be in [2, {target.max_context}], the target's context, "
                f"got {max_tokens_per_row}"
            )
        self._target, self._seed = target, seed
        self._row_tokens = max_tokens_per_row
        self._limit = max_tokens_per_row or target.max_context

    def row_tokens(self, needed: int) -> int:
        """Tokens a cache row is sized for when the longest request needs ``needed``."""
        return self._row_tokens or needed

    def check(self, request: Request) -> None:
        """Raise ValueError if the target cannot continue the request's prompt."""
        name, length = request.request_id, len(request.prompt_ids)
        if length == 0:
            raise ValueError(f"a prompt needs at least one token, got none in request {name!r}")
        if length >= self._limit:
            raise ValueError(
                f"prompt {name!r} of {length} tokens leaves no room for an answer "
                f"in the context of {self._limit}; shorten it"
            )
        bad = [t for t in request.prompt_ids if not 0 <= t < self._target.vocab_size]
        if bad:
            raise ValueError(
                f"token ids must be in [0, {self._target.vocab_size}), got {bad[0]} in request {name!r}; "
                "encode the prompt with the target's tokenizer"
            )
        if request.params.stop:
            self._check_stop(request.params.stop)

    def _check_stop(self, stop: tuple[str, ...]) -> None:
        tokenizer = self._target.tokenizer
        if tokenizer is None:
            raise ValueError(
                f"stop strings need a tokenizer, and {self._target.name} has none; use eos_token_ids"
            )
        special = [text for text in stop if text in tokenizer.all_special_tokens]
        if special:
            token = tokenizer.convert_tokens_to_ids(special[0])
            raise ValueError(
                f"stop strings are looked for in the text, which has no special tokens, got {special[0]!r}; "
                f"use eos_token_ids=[{token}]"
            )

    def max_tokens(self, request: Request) -> int:
        """Prompt and output tokens at most, by the request's cap or the row's room."""
        return min(len(request.prompt_ids) + request.params.max_new_tokens, self._limit)

    def sequence(self, request: Request, arrival_s: float) -> Row:
        """The row of a checked request."""
        params = request.params
        eos = self._target.eos_token_ids if params.eos_token_ids is None else params.eos_token_ids
        seed = request_seed(self._seed, request.request_id) if params.seed is None else params.seed
        return Row(
            request=request,
            seed=seed & ((1 << 63) - 1),
            eos_token_ids=eos,
            max_tokens=self.max_tokens(request),
            tokenizer=self._target.tokenizer,
            arrival_s=arrival_s,
        )

    def make(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Request]:
        """Requests named by their place.

        Raises:
            ValueError: not one set of parameters for all prompts or one a prompt.
        """
        every = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(every) != len(prompts):
            raise ValueError(
                "give one SamplingParams for all prompts or one a prompt, "
                f"got {len(every)} for {len(prompts)}"
            )
        return [
            Request(request_id=str(i), prompt_ids=self._encode(prompt), params=p)
            for i, (prompt, p) in enumerate(zip(prompts, every, strict=True))
        ]

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        tokenizer = self._target.tokenizer
        if not isinstance(prompt, str) and all(isinstance(item, int) for item in prompt):
            return tuple(prompt)  # type: ignore[arg-type]
        if tokenizer is None:
            raise ValueError(
                f"a text prompt needs a tokenizer, and {self._target.name} has none; give token ids"
            )
        if isinstance(prompt, str):
            return tuple(tokenizer(prompt)["input_ids"])
        return tuple(
            tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=True)[
                "input_ids"
            ]
        )


def sampled_row(row: Row) -> SampledRow:
    """What verification needs to know of a row."""
    return SampledRow(
        params=row.request.params,
        tokens=row.tokens,
        num_prompt=row.num_prompt,
        eos_token_ids=row.eos_token_ids,
        seed=row.seed,
    )
