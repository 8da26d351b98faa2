"""One request while it lives: its tokens, where they are cached, and when it ends.

The only record that changes. Tokens are appended one at a time, so that the earliest of end token,
stop string, cap and context end wins by position, and everything is cut at that same token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dspark.types import Completion, FinishReason, Request


@dataclass(slots=True, kw_only=True)
class Sequence:
    """A request in the engine.

    Attributes:
        tokens: prompt and output.
        num_cached: tokens whose keys and values are in the target's cache.
        slot: the engine row it occupies; -1 while waiting.
    """

    request: Request
    seed: int
    eos_token_ids: tuple[int, ...]
    max_tokens: int  # prompt and output together, by cap or context
    tokenizer: Any = None
    tokens: list[int] = field(default_factory=list)
    num_cached: int = 0
    slot: int = -1
    num_decode_steps: int = 0
    arrival_s: float = 0.0
    first_token_s: float | None = None
    last_token_s: float = 0.0
    finish_reason: FinishReason | None = None
    _stop_start: int | None = None  # where the matched stop string starts in the text

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt_ids)

    @property
    def num_prompt(self) -> int:
        """Prompt tokens."""
        return len(self.request.prompt_ids)

    @property
    def num_new(self) -> int:
        """Output tokens so far."""
        return len(self.tokens) - self.num_prompt

    @property
    def in_prefill(self) -> bool:
        """True until the whole prompt is cached and the first token exists."""
        return self.num_new == 0

    @property
    def remaining(self) -> int:
        """Tokens it may still emit before a cap or the context ends it."""
        return self.max_tokens - len(self.tokens)

    def commit(self, candidates: list[int], now_s: float) -> int:
        """How many of ``candidates`` were appended: all, or up to the one that ended the request."""
        before = len(self.tokens)
        for token in candidates:
            self.tokens.append(token)
            self.finish_reason = self._ending(token)
            if self.finish_reason is not None:
                break
        if self.first_token_s is None:
            self.first_token_s = now_s
        self.last_token_s = now_s
        return len(self.tokens) - before

    def _ending(self, token: int) -> FinishReason | None:
        params = self.request.params
        if token in self.eos_token_ids and not params.ignore_eos:
            return FinishReason.EOS
        if params.stop and self._matches_stop():
            return FinishReason.STOP
        if self.num_new >= params.max_new_tokens:
            return FinishReason.LENGTH
        if len(self.tokens) >= self.max_tokens:
            return FinishReason.CONTEXT
        return None

    def _matches_stop(self) -> bool:
        """True if the text now holds a stop string; only a tail that can hold it is decoded first."""
        stops = self.request.params.stop
        longest = max(len(stop.encode()) for stop in stops)
        special = set(self.tokenizer.all_special_ids)  # they have no text, so they do not fill the tail
        output = [token for token in self.tokens[self.num_prompt :] if token not in special]
        tail = self._decode(output[-(longest + 4) :])
        if not any(stop in tail for stop in stops):
            return False
        text = self._decode(output)
        starts = [at for stop in stops if (at := text.find(stop)) >= 0]
        self._stop_start = min(starts) if starts else None
        return bool(starts)

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def completion(self) -> Completion:
        """The finished request; ids end with the token that ended it, text before a stop string."""
        assert self.finish_reason is not None, f"request {self.request.request_id} has not ended"
        output = self.tokens[self.num_prompt :]
        text = self._decode(output)[: self._stop_start] if self.tokenizer is not None else ""
        first = self.last_token_s if self.first_token_s is None else self.first_token_s
        return Completion(
            request_id=self.request.request_id,
            prompt_ids=self.request.prompt_ids,
            token_ids=tuple(output),
            text=text,
            finish_reason=self.finish_reason,
            ttft_s=first - self.arrival_s,
            latency_s=self.last_token_s - self.arrival_s,
        )
