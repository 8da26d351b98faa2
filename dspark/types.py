"""Frozen records that cross rooms.

Shape legend, used in every tensor module: ``B`` rows (sequences of one step), ``K`` the largest
depth, ``V`` vocabulary size, ``N`` tokens of the flattened pass, ``M`` positions whose logits are
needed. Integer tensors are int64 on the engine's device unless a comment says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_TOKEN = -1
"""Filler of padded token tensors: position not drafted, or not emitted."""


class Knowledge(StrEnum):
    """What a signal about draft position k may have looked at."""

    PAST = "past"  # earlier steps only
    PRE_TOKEN = "pre_token"  # a function of q(.|x_<k), before x_k is drawn
    SAMPLED_TOKEN = "sampled_token"  # depends on the drawn x_k


class Signal(StrEnum):
    """What a drafter can tell about each position it drafts."""

    TOP1_PROBABILITY = "top1_probability"  # max_v q(v|x_<k)
    ENTROPY = "entropy"  # H(q(.|x_<k)) in nats
    MARGIN = "margin"  # largest minus second largest draft logit
    CONFIDENCE = "confidence"  # a head's estimate of the conditional acceptance c_k
    TOKEN_PROBABILITY = "token_probability"  # q(x_k|x_<k) of the drawn token
    DIVERGENCE = "divergence"  # KL(q || p) in nats; known from the target's pass, once it is past

    @property
    def knowledge(self) -> Knowledge:
        """What the signal may have looked at (design: classes of losslessness)."""
        if self is Signal.DIVERGENCE:
            return Knowledge.PAST
        return Knowledge.SAMPLED_TOKEN if self is Signal.TOKEN_PROBABILITY else Knowledge.PRE_TOKEN


class LosslessClass(StrEnum):
    """Why a depth rule leaves the output law alone, or why it does not."""

    FIXED = "A"  # depth fixed before drafting
    STOP_AFTER = "B"  # stop after including x_k: the token just drawn is verified
    PRE_TOKEN = "C"  # drop x_k by a signal that does not depend on it
    SAMPLED = "D"  # drop by the sampled token: biased under rejection sampling
    DETERMINISTIC = "E"  # drafts are not samples, any pruning is exact


class FinishReason(StrEnum):
    """Why a request ended."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"  # max_new_tokens
    CONTEXT = "context"  # the row is full: the target's context, or max_tokens_per_row
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen and when it ends.

    Raises:
        ValueError: a field is outside its range.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0  # end-of-sequence tokens are impossible before
    temperature: float = 0.0  # 0 is greedy
    top_k: int = 0  # 0 keeps all
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    eos_token_ids: tuple[int, ...] | None = None  # None: the target's own
    ignore_eos: bool = False
    seed: int | None = None  # None: derived from the engine's seed and the request's place
    max_depth: int | None = None  # per-request cap on the drafted tokens of a step

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise ValueError(f"stop must be a list of strings, got the string {self.stop!r}")
        checks = (
            (self.max_new_tokens >= 1, "max_new_tokens", ">= 1"),
            (0 <= self.min_new_tokens <= self.max_new_tokens, "min_new_tokens", "in [0, max_new_tokens]"),
            (self.temperature >= 0, "temperature", ">= 0 (0 is greedy)"),
            (self.top_k >= 0, "top_k", ">= 0 (0 keeps all)"),
            (0 < self.top_p <= 1, "top_p", "in (0, 1]"),
            (self.repetition_penalty > 0, "repetition_penalty", "> 0 (1 is none)"),
            (self.max_depth is None or self.max_depth >= 0, "max_depth", ">= 0, or null for no cap"),
            (all(self.stop), "stop", "a list of non-empty strings"),
        )
        for holds, name, rule in checks:
            if not holds:
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt to continue."""

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    arrival_s: float = 0.0  # seconds after the run's start at which it may be admitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What became of a request; ids, text and counters end at the same token."""

    request_id: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str  # without a matched stop string and special tokens
    finish_reason: FinishReason
    ttft_s: float  # arrival to first token
    latency_s: float  # arrival to last token


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChunk:
    """Tokens that one request emitted in one step."""

    request_id: str
    token_ids: tuple[int, ...]
    completion: Completion | None  # present on the request's last chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a policy may know when it decides; one entry a decode row.

    ``slots`` index the policy's per-row state: a row keeps its slot for life, and ``is_new`` marks
    the first decode step of a slot's present occupant, so that state left by the former one can
    be dropped. Prefill rows are not in here.
    """

    step: int
    slots: Tensor  # [B]
    is_new: Tensor  # bool [B]
    context_lengths: Tensor  # [B] committed tokens, prompt included
    remaining_tokens: Tensor  # [B] tokens the row may still emit
    depth_caps: Tensor  # [B] the request's own cap on depth
    num_slots: int
    cost: object | None  # a dspark.cost.base.CostModel

    @property
    def num_rows(self) -> int:
        """B, the number of decode rows."""
        return self.slots.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a drafter proposes for the decode rows of a step."""

    tokens: Tensor  # [B, K], NO_TOKEN past lengths
    lengths: Tensor  # [B]
    q: Tensor | None  # float [B, K, V]: exactly what was sampled from; None for point masses
    signals: Mapping[Signal, Tensor] = field(default_factory=dict)  # float [B, K], NaN past lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What verification decided for the decode rows of a step."""

    verify_lengths: Tensor  # [B] drafted tokens the target saw
    accepted: Tensor  # [B]
    next_token: Tensor  # [B] the recovered token, or the bonus token where all were accepted
    step_time_s: float = 0.0  # seconds from the start of the step up to this verdict
    draft: Draft | None = None  # what was drafted for these rows; None if nothing was
    divergence: Tensor | None = None  # float [B, K], NaN where not verified; if a policy needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecord:
    """One decode row of one step; counters are taken after truncation."""

    request_id: str
    planned: int  # what the policy asked for
    allowed: int  # after the engine's clamp to budgets, contexts and caps
    drafted: int
    verified: int
    accepted: int  # as the verifier decided
    emitted: int  # accepted + 1, less what EOS, stop or cap cut off
    accepted_emitted: int  # accepted tokens that were emitted
    context: int  # committed tokens before the step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step of the engine."""

    step: int
    rows: tuple[RowRecord, ...]
    num_prefill_rows: int
    num_prefill_tokens: int
    num_pass_tokens: int  # N, padding excluded
    context_tokens: int  # cached tokens that the pass attended to
    chunks: tuple[TokenChunk, ...]
    wall_s: float  # of the engine's clock
    time_split_s: Mapping[str, float]  # draft, target, policy, verify, rest
    is_modelled: bool = False  # the seconds are a cost model's; files then call them modelled_*
