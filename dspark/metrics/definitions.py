"""Every metric, once: totals over totals, from counters that are taken after truncation.

``Totals`` are sums over steps, so they add up over steps, cells and the parts of a resumed run. A
metric is a function of totals (or of completions) with its formula in its docstring; ``None``
means that its denominator is empty. *Emitted*, *accepted* and *verified* are three numbers.
Seconds are those of the clock that the steps ran by, the wall unless it was modelled; a ``Tally``
refuses to add up both, and ``time_fields`` names what is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dspark.types import Completion, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the steps of a run. A *row-step* is one decode row of one step."""

    num_steps: int = 0
    num_target_passes: int = 0  # steps with at least one token in the pass
    num_pass_tokens: int = 0  # tokens of all passes, prompts included
    num_prefill_tokens: int = 0
    num_context_tokens: int = 0  # cached tokens that the passes attended to
    wall_s: float = 0.0
    time_split_s: Mapping[str, float] = field(default_factory=dict)
    decode_only_wall_s: float = 0.0  # of steps without prefill
    decode_only_emitted: int = 0
    num_row_steps: int = 0
    num_draft_row_steps: int = 0  # row-steps that drafted a token or more
    emitted: int = 0
    emitted_with_draft: int = 0  # in row-steps that drafted
    planned: int = 0
    allowed: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0  # accepted tokens that were emitted
    verified_at: tuple[int, ...] = ()  # [k-1]: row-steps whose position k was verified
    eligible_at: tuple[int, ...] = ()  # [k-1]: row-steps with k verified and k-1 accepted
    accepted_at: tuple[int, ...] = ()  # [k-1]: row-steps whose positions up to k were accepted

    def __add__(self, other: Totals) -> Totals:
        return Totals(**{f.name: _add(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})


def step_totals(step: StepRecord) -> Totals:
    """The totals of one step."""
    decode_only = step.num_prefill_rows == 0
    emitted = sum(row.emitted for row in step.rows)
    return Totals(
        num_steps=1,
        num_target_passes=int(step.num_pass_tokens > 0),
        num_pass_tokens=step.num_pass_tokens,
        num_prefill_tokens=step.num_prefill_tokens,
        num_context_tokens=step.context_tokens,
        wall_s=step.wall_s,
        time_split_s=dict(step.time_split_s),
        decode_only_wall_s=step.wall_s if decode_only else 0.0,
        decode_only_emitted=emitted if decode_only else 0,
        num_row_steps=len(step.rows),
        num_draft_row_steps=sum(row.drafted > 0 for row in step.rows),
        emitted=emitted,
        emitted_with_draft=sum(row.emitted for row in step.rows if row.drafted > 0),
        planned=sum(row.planned for row in step.rows),
        allowed=sum(row.allowed for row in step.rows),
        drafted=sum(row.drafted for row in step.rows),
        verified=sum(row.verified for row in step.rows),
        accepted=sum(row.accepted_emitted for row in step.rows),
        verified_at=_count_reached(row.verified for row in step.rows),
        eligible_at=_count_reached(min(row.verified, row.accepted + 1) for row in step.rows),
        accepted_at=_count_reached(row.accepted for row in step.rows),
    )


def acceptance_length(totals: Totals) -> float | None:
    """τ = Σ emitted / Σ row-steps, both over row-steps that drafted; bonus and recovered included."""
    return _ratio(totals.emitted_with_draft, totals.num_draft_row_steps)


def acceptance_length_per_request_mean(per_request: Iterable[tuple[int, int]]) -> float | None:
    """The mean over requests of each request's own τ; those that never drafted are left out.

    Args:
        per_request: emitted tokens and row-steps of each request, over its row-steps that drafted.
    """
    each = [emitted / row_steps for emitted, row_steps in per_request if row_steps > 0]
    return _ratio(sum(each), len(each))


def acceptance_rate(totals: Totals) -> float | None:
    """Σ accepted (and emitted) / Σ verified, in [0, 1]."""
    return _ratio(totals.accepted, totals.verified)


def survival_at(totals: Totals) -> tuple[float | None, ...]:
    """[k-1] = row-steps with positions 1..k accepted / row-steps with position k verified.

    Counted as the verifier decided, before truncation, since it describes the drafter.
    """
    accepted = _padded(totals.accepted_at, len(totals.verified_at))
    return tuple(_ratio(a, v) for a, v in zip(accepted, totals.verified_at, strict=True))


def conditional_at(totals: Totals) -> tuple[float | None, ...]:
    """[k-1] = row-steps with position k accepted / row-steps with k verified and k-1 accepted.

    Counted as the verifier decided, like ``survival_at``.
    """
    accepted = _padded(totals.accepted_at, len(totals.eligible_at))
    return tuple(_ratio(a, e) for a, e in zip(accepted, totals.eligible_at, strict=True))


def output_tokens_per_s(num_output_tokens: int, wall_s: float) -> float | None:
    """Output tokens / seconds of all steps, prefill included (end to end)."""
    return _ratio(num_output_tokens, wall_s)


def decode_tokens_per_s(totals: Totals) -> float | None:
    """Tokens emitted / seconds, both over the steps without prefill.

    A request's first token comes from its prefill, so it is on neither side. Steps that mix
    prefill and decode rows are left out altogether, since their time cannot be told apart.
    """
    return _ratio(totals.decode_only_emitted, totals.decode_only_wall_s)


def wasted_tokens(totals: Totals) -> int:
    """Σ drafted - Σ accepted: tokens that were drafted and are in no output."""
    return totals.drafted - totals.accepted


def tokens_per_pass(totals: Totals) -> float | None:
    """Tokens in the passes / target passes; prompts, drafts and last tokens alike."""
    return _ratio(totals.num_pass_tokens, totals.num_target_passes)


def model_flops_per_output_token(totals: Totals, num_parameters: int, num_output_tokens: int) -> float | None:
    """2 · parameters · Σ pass tokens / output tokens; attention's own products are left out."""
    return _ratio(2 * num_parameters * totals.num_pass_tokens, num_output_tokens)


def bytes_per_output_token(
    totals: Totals, weight_bytes: int, cache_bytes_per_token: int, num_output_tokens: int
) -> float | None:
    """(weights · passes + cache entry · Σ cached tokens attended to) / output tokens."""
    moved = weight_bytes * totals.num_target_passes + cache_bytes_per_token * totals.num_context_tokens
    return _ratio(moved, num_output_tokens)


def ttft_mean_s(completions: Collection[Completion]) -> float | None:
    """Mean over requests of the seconds from arrival to the first token."""
    return _ratio(sum(c.ttft_s for c in completions), len(completions))


def tpot_s(completion: Completion) -> float | None:
    """(latency - time to first token) / (tokens - 1) of one request; None for a single token."""
    return _ratio(completion.latency_s - completion.ttft_s, len(completion.token_ids) - 1)


def tpot_mean_s(completions: Iterable[Completion]) -> float | None:
    """Mean of ``tpot_s`` over the requests of two tokens or more."""
    each = [value for value in map(tpot_s, completions) if value is not None]
    return _ratio(sum(each), len(each))


def goodput_tokens_per_s(
    completions: Iterable[Completion], wall_s: float, *, max_ttft_s: float, max_tpot_s: float
) -> float | None:
    """Output tokens of requests within both latency bounds / seconds of all steps."""
    good = sum(
        len(c.token_ids) for c in completions if c.ttft_s <= max_ttft_s and (tpot_s(c) or 0.0) <= max_tpot_s
    )
    return _ratio(good, wall_s)


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def _count_reached(lengths: Iterable[int]) -> tuple[int, ...]:
    """[k-1]: how many lengths are k or more."""
    lengths = list(lengths)
    return tuple(sum(n >= k for n in lengths) for k in range(1, max(lengths, default=0) + 1))


def _padded(counts: tuple[int, ...], length: int) -> tuple[int, ...]:
    return counts + (0,) * (length - len(counts))


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(x + y for x, y in zip_longest(a, b, fillvalue=0))
    if isinstance(a, int | float):
        return a + b
    return {key: a.get(key, 0.0) + b.get(key, 0.0) for key in {**a, **b}}
