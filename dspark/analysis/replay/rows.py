"""A replay as the fields of a live run's summary row, and how the rows of a batch size compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dspark.metrics import definitions
from dspark.metrics.time_fields import named_by_clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark.analysis.replay.headroom import Estimate, PairedSpeeds
    from dspark.analysis.replay.record import Replay

PLAIN, ORACLE = "fixed 0", "oracle"
"""The names of plain decoding and of hindsight among policies."""


def replayed_row(done: Replay) -> dict[str, Any]:
    """The counted part of a summary row: what a live run under a modelled clock would have said.

    Tokens themselves, and latencies of requests that all wait from the start, are in no replay.
    """
    totals = done.totals()
    num_tokens = int(done.trace.output_tokens[done.demand.requests].sum())
    row = {
        "num_requests": done.demand.num_requests,
        "output_tokens": num_tokens,
        "wall_s": totals.wall_s,
        "tokens_per_s": definitions.output_tokens_per_s(num_tokens, totals.wall_s),
        "decode_tokens_per_s": definitions.decode_tokens_per_s(totals),
        "acceptance_length": definitions.acceptance_length(totals),
        "acceptance_length_per_request_mean": definitions.acceptance_length_per_request_mean(
            _with_draft(done)
        ),
        "acceptance_rate": definitions.acceptance_rate(totals),
        "survival_at": list(definitions.survival_at(totals)),
        "conditional_at": list(definitions.conditional_at(totals)),
        "drafted_tokens": totals.drafted,
        "verified_tokens": totals.verified,
        "verified_per_row_step": totals.verified / totals.num_row_steps if totals.num_row_steps else None,
        "accepted_tokens": totals.accepted,
        "wasted_tokens": definitions.wasted_tokens(totals),
        "target_passes": totals.num_target_passes,
        "tokens_per_pass": definitions.tokens_per_pass(totals),
        "time_split_s": dict(totals.time_split_s),
    }
    return named_by_clock(row, is_modelled=True)


def _with_draft(done: Replay) -> list[tuple[int, int]]:
    """Emitted tokens and row-steps of each request, over its row-steps that drafted."""
    drafted = done.rows["drafted"] > 0
    request, emitted = done.rows["request"][drafted], done.rows["emitted"][drafted]
    sums = np.bincount(request, weights=emitted), np.bincount(request)
    return [(int(tokens), int(steps)) for tokens, steps in zip(*sums, strict=True)]


def compared_batch(
    rows: Sequence[Mapping[str, Any]], speeds: PairedSpeeds
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What holds for a batch size, and its rows with ratios to plain decoding and to the best fixed depth.

    Ratios are of tokens/s, prefill included, but for ``modelled_ratio_to_plain``, which is of decode
    tokens/s as in a live run. Every ``*_interval`` is the pair of ends of what it is named after.

    Args:
        rows: all fixed depths, ``ORACLE``, and any policies, at one batch size.
        speeds: of all of them.
    """
    best_fixed = speeds.best_of(row["policy"] for row in rows if is_fixed(row))
    plain = next(row for row in rows if row["policy"] == PLAIN)["modelled_decode_tokens_per_s"]
    compared = []
    for row in rows:
        policy, decode = row["policy"], row["modelled_decode_tokens_per_s"]
        headroom = speeds.headroom(policy, best_fixed=best_fixed, oracle=ORACLE)
        compared.append(
            {
                **row,
                "modelled_ratio_to_plain": decode / plain if decode and plain else None,
                **_named("modelled_ratio_to_plain_end_to_end", speeds.ratio(policy, PLAIN)),
                **_named("modelled_ratio_to_best_fixed", speeds.ratio(policy, best_fixed)),
                **_named("modelled_headroom", headroom),
                "is_best_fixed": policy == best_fixed,
            }
        )
    room = speeds.room(best_fixed=best_fixed, oracle=ORACLE)
    return {"best_fixed": best_fixed, **_named("modelled_room", room)}, compared


def is_fixed(row: Mapping[str, Any]) -> bool:
    """True for a row of a depth that never changes."""
    return row["policy"].startswith("fixed ")


def _named(name: str, estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {name: None, f"{name}_interval": None}
    return {name: estimate.value, f"{name}_interval": [estimate.low, estimate.high]}
