"""The rows of ``summary.json``: one measurement each, and their median over repeats."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from dspark.metrics import definitions
from dspark.metrics.time_fields import named_by_clock, one_clock, time_field

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dspark.metrics.tally import Tally
    from dspark.types import Completion

SUMMARY_SCHEMA = 1
"""The version of ``summary.json``."""


def tokens_sha256(outputs: Sequence[Sequence[int]]) -> str:
    """The SHA-256 of the output ids in request order.

    Hashed are the bytes of the list of lists as compact JSON, such as ``[[5,7],[9]]``.
    """
    text = json.dumps([list(ids) for ids in outputs], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def measured(
    tally: Tally,
    completions: Sequence[Completion],
    *,
    num_parameters: int,
    weight_bytes: int,
    cache_bytes_per_token: int,
    latency_bound_s: tuple[float, float] | None = None,
    is_modelled: bool = False,
) -> dict[str, Any]:
    """The measured part of a summary row; None where a metric has no denominator.

    Args:
        tally: of the measurement's steps.
        completions: of the finished requests, in request order.
        num_parameters: the target's.
        weight_bytes: bytes of the target's weights.
        cache_bytes_per_token: bytes of a cached token, over all layers.
        latency_bound_s: largest time to first token and time per output token of goodput.
        is_modelled: the seconds are a cost model's; fields that hold time are then named ``modelled_*``.
    """
    totals = tally.totals
    outputs = [completion.token_ids for completion in completions]
    num_tokens = sum(map(len, outputs))
    row = {
        "num_requests": len(completions),
        "output_tokens": num_tokens,
        "wall_s": totals.wall_s,
        "tokens_per_s": definitions.output_tokens_per_s(num_tokens, totals.wall_s),
        "decode_tokens_per_s": definitions.decode_tokens_per_s(totals),
        "acceptance_length": definitions.acceptance_length(totals),
        "acceptance_length_per_request_mean": definitions.acceptance_length_per_request_mean(
            tally.per_request
        ),
        "acceptance_rate": definitions.acceptance_rate(totals),
        "survival_at": list(definitions.survival_at(totals)),
        "conditional_at": list(definitions.conditional_at(totals)),
        "drafted_tokens": totals.drafted,
        "verified_tokens": totals.verified,
        "accepted_tokens": totals.accepted,
        "wasted_tokens": definitions.wasted_tokens(totals),
        "target_passes": totals.num_target_passes,
        "tokens_per_pass": definitions.tokens_per_pass(totals),
        "model_flops_per_output_token": definitions.model_flops_per_output_token(
            totals, num_parameters, num_tokens
        ),
        "bytes_per_output_token": definitions.bytes_per_output_token(
            totals, weight_bytes, cache_bytes_per_token, num_tokens
        ),
        "ttft_mean_s": definitions.ttft_mean_s(completions),
        "tpot_mean_s": definitions.tpot_mean_s(completions),
        "goodput_tokens_per_s": _goodput(completions, totals.wall_s, latency_bound_s),
        "time_split_s": dict(totals.time_split_s),
        "finish_reasons": dict(sorted(Counter(c.finish_reason.value for c in completions).items())),
        "tokens_sha256": tokens_sha256(outputs),
    }
    return named_by_clock(row, is_modelled=is_modelled)


def over_repeats(
    repeats: Sequence[Mapping[str, Any]], plain: Sequence[Mapping[str, Any]] | None
) -> dict[str, Any]:
    """The summary row of repeated measurements, the one with the (lower) median wall time.

    All its numbers belong to one measurement. ``ratio_to_plain`` is the median over repeats of the
    ratio of decode tokens/s within a repeat, where both sides ran close in time;
    ``ratio_to_plain_end_to_end`` is the same of tokens/s. The spread is in ``repeats``.

    Args:
        repeats: rows of one cell.
        plain: rows of the baseline at the same batch size, in the same order; None for no ratios.

    Raises:
        ValueError: some rows are of modelled runs and some are not.
    """
    is_modelled = one_clock([*repeats, *(plain or ())])
    wall, total, decode = (
        time_field(name, is_modelled=is_modelled)
        for name in ("wall_s", "tokens_per_s", "decode_tokens_per_s")
    )
    chosen = sorted(repeats, key=lambda row: row[wall])[(len(repeats) - 1) // 2]
    kept = (wall, total, decode, "tokens_sha256")
    ratios = {
        "ratio_to_plain": _median_ratio(repeats, plain, decode),
        "ratio_to_plain_end_to_end": _median_ratio(repeats, plain, total),
    }
    return {
        **chosen,
        **named_by_clock(ratios, is_modelled=is_modelled),
        "num_repeats": len(repeats),
        "repeats": [{key: row[key] for key in kept} for row in repeats],
    }


def _median_ratio(
    rows: Sequence[Mapping[str, Any]], plain: Sequence[Mapping[str, Any]] | None, key: str
) -> float | None:
    pairs = zip(rows, plain or (), strict=False)
    ratios = [row[key] / base[key] for row, base in pairs if row[key] is not None and base[key]]
    return statistics.median(ratios) if ratios else None


def _goodput(
    completions: Collection[Completion], wall_s: float, bound_s: tuple[float, float] | None
) -> float | None:
    if bound_s is None:
        return None
    max_ttft_s, max_tpot_s = bound_s
    return definitions.goodput_tokens_per_s(completions, wall_s, max_ttft_s=max_ttft_s, max_tpot_s=max_tpot_s)
