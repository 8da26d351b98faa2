"""Pure pieces of a step: what policies see, what they may use, and the flattened pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from dspark.engine.clock import StepSizes
from dspark.models.base import PassRow
from dspark.types import RowRecord, StepContext, StepRecord

if TYPE_CHECKING:
    from collections.abc import Sequence as Rows

    from torch import Tensor

    from dspark.cost.base import CostModel
    from dspark.engine.clock import StepTimer
    from dspark.engine.scheduler import Batch
    from dspark.engine.sequence import Sequence
    from dspark.types import Draft, TokenChunk, Verdict

NO_CAP = 1 << 30
"""Stands for "no per-request cap on depth" in integer tensors."""

HOST = torch.device("cpu")
"""Where the small numbers of a step live: plans, lengths, draft tokens, signals, accepted counts.

The next pass is built from them in Python, and policies ask them dozens of small questions, each of
which would wait for a device. What has a vocabulary as its last axis stays where the model is.
"""


def step_context(
    rows: Rows[Sequence], *, step: int, num_slots: int, cost: CostModel | None, device: torch.device
) -> StepContext:
    """What policies may know about the decode rows of this step."""
    caps = [NO_CAP if s.request.params.max_depth is None else s.request.params.max_depth for s in rows]
    columns = torch.tensor(
        [
            [s.slot for s in rows],
            [int(s.num_decode_steps == 0) for s in rows],
            [len(s.tokens) for s in rows],
            [s.remaining for s in rows],
            caps,
        ],
        dtype=torch.int64,
        device=device,
    )
    return StepContext(
        step=step,
        slots=columns[0],
        is_new=columns[1].bool(),
        context_lengths=columns[2],
        remaining_tokens=columns[3],
        depth_caps=columns[4],
        num_slots=num_slots,
        cost=cost,
    )


def usable_depth(ctx: StepContext, draft_context: int | None) -> Tensor:
    """Int [B]: the deepest draft a row can still use.

    A step emits its accepted tokens and one more, so a row that may emit r tokens uses r - 1 drafts;
    that also keeps every verified position inside the target's context. ``draft_context`` is the
    drafter's own context length. Never below 0.
    """
    usable = torch.minimum(ctx.remaining_tokens - 1, ctx.depth_caps)
    if draft_context is not None:
        usable = torch.minimum(usable, draft_context - ctx.context_lengths)
    return usable.clamp(min=0)


def check_depths(what: str, depths: Tensor, ctx: StepContext, upper: Tensor | int, policy: object) -> int:
    """The largest of a policy's depths.

    Raises:
        ValueError: the policy's answer is not Int [B] in [0, upper].
    """
    name = type(policy).__name__
    if depths.shape != ctx.slots.shape or depths.dtype.is_floating_point:
        raise ValueError(
            f"{name}.{what} must return one integer a decode row, shape [{ctx.num_rows}], "
            f"got {depths.dtype} {list(depths.shape)}"
        )
    given = depths.tolist()
    limits = upper.tolist() if isinstance(upper, torch.Tensor) else [upper] * len(given)
    for row, (depth, limit) in enumerate(zip(given, limits, strict=True)):
        if not 0 <= depth <= limit:
            raise ValueError(f"{name}.{what} must stay in [0, {limit}] for row {row}, got {depth}")
    return max(given, default=0)


def pass_rows(batch: Batch, drafts: Rows[list[int]]) -> list[PassRow]:
    """The flattened pass: each decode row's last token and its drafts, then the prompt chunks.

    Args:
        batch: the step's rows.
        drafts: for each decode row, the draft tokens to verify.
    """
    rows = [
        PassRow(slot=s.slot, start=s.num_cached, token_ids=[s.tokens[-1], *draft], num_logits=1 + len(draft))
        for s, draft in zip(batch.decode, drafts, strict=True)
    ]
    for s, count in batch.prefill:
        chunk = s.tokens[s.num_cached : s.num_cached + count]
        finishing = s.num_cached + count == s.num_prompt
        rows.append(PassRow(slot=s.slot, start=s.num_cached, token_ids=chunk, num_logits=int(finishing)))
    return rows


def row_records(
    batch: Batch,
    planned: list[int],
    allowed: list[int],
    draft: Draft | None,
    verdict: Verdict,
    contexts: list[int],
    emitted: list[int],
) -> tuple[RowRecord, ...]:
    """One record a decode row; lists have one entry a decode row, in order."""
    drafted = [0] * len(batch.decode) if draft is None else draft.lengths.tolist()
    verified, accepted = verdict.verify_lengths.tolist(), verdict.accepted.tolist()
    return tuple(
        RowRecord(
            request_id=s.request.request_id,
            planned=planned[i],
            allowed=allowed[i],
            drafted=drafted[i],
            verified=verified[i],
            accepted=accepted[i],
            emitted=emitted[i],
            accepted_emitted=min(accepted[i], emitted[i]),
            context=contexts[i],
        )
        for i, s in enumerate(batch.decode)
    )


def step_sizes(batch: Batch, rows: Rows[PassRow], draft: Draft | None) -> StepSizes:
    """What the step does, as far as its time depends on it."""
    return StepSizes(
        num_decode_rows=len(batch.decode),
        num_pass_tokens=sum(len(row.token_ids) for row in rows),
        context_tokens=sum(row.start for row in rows),
        draft_lengths=None if draft is None else draft.lengths,
    )


def step_record(
    step: int,
    batch: Batch,
    sizes: StepSizes,
    rows: tuple[RowRecord, ...],
    chunks: tuple[TokenChunk, ...],
    timer: StepTimer,
) -> StepRecord:
    """The record of a step with a pass."""
    return StepRecord(
        step=step,
        rows=rows,
        num_prefill_rows=len(batch.prefill),
        num_prefill_tokens=sum(count for _, count in batch.prefill),
        num_pass_tokens=sizes.num_pass_tokens,
        context_tokens=sizes.context_tokens,
        chunks=chunks,
        wall_s=timer.elapsed_s,
        time_split_s=timer.split_s(),
        is_modelled=timer.is_modelled,
    )


def idle_record(step: int, chunks: tuple[TokenChunk, ...], timer: StepTimer) -> StepRecord:
    """The record of a step without a pass."""
    return StepRecord(
        step=step,
        rows=(),
        num_prefill_rows=0,
        num_prefill_tokens=0,
        num_pass_tokens=0,
        context_tokens=0,
        chunks=chunks,
        wall_s=timer.elapsed_s,
        time_split_s=timer.split_s(),
        is_modelled=timer.is_modelled,
    )


def verified_tokens(draft: Draft | None, lengths: Tensor, num_rows: int) -> list[list[int]]:
    """For each decode row, the draft tokens that the target will see."""
    if draft is None:
        return [[] for _ in range(num_rows)]
    return [tokens[:count] for tokens, count in zip(draft.tokens.tolist(), lengths.tolist(), strict=True)]


def on_host(verdict: Verdict) -> Verdict:
    """The verdict with its counts and tokens on the host: the one wait of a step for its pass."""
    accepted, next_token = verdict.accepted, verdict.next_token
    if accepted.device == next_token.device:
        if accepted.device == HOST:
            return verdict
        accepted, next_token = torch.stack([accepted, next_token]).to(HOST).unbind()  # one copy for both
    else:  # without drafts nothing was counted on the device
        accepted, next_token = accepted.to(HOST), next_token.to(HOST)
    return replace(verdict, accepted=accepted, next_token=next_token)


def decode_part(verdict: Verdict, num_rows: int) -> Verdict:
    """The verdict of the first ``num_rows`` rows: the decode rows."""
    if verdict.accepted.shape[0] == num_rows:
        return verdict
    return replace(
        verdict,
        verify_lengths=verdict.verify_lengths[:num_rows],
        accepted=verdict.accepted[:num_rows],
        next_token=verdict.next_token[:num_rows],
    )
