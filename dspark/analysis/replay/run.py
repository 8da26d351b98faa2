"""A policy run again on a trace: the engine's step without target and drafter.

The policy is the same object under the same contract, and what it is told is what it would be told
live: contexts, budgets, signals of what is drafted, and verdicts. Only two things are not known to a
trace: which tokens were drafted, and how far the target is from the drafter (``Signal.DIVERGENCE``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from dspark.analysis.replay.demand import Demand
from dspark.analysis.replay.hindsight import Oracle
from dspark.analysis.replay.record import ROW_FIELDS, STEP_FIELDS, Replay
from dspark.analysis.replay.slots import Slots
from dspark.policies.base import Policy
from dspark.policies.fixed import Fixed
from dspark.types import NO_TOKEN, Draft, Signal, StepContext, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cost.base import CostModel, StepTime

NO_CAP = 1 << 30
"""Stands for "no per-request cap on depth", as in the engine."""


def check_replay(trace: AcceptanceTrace, policy: Policy, cost: CostModel | None) -> None:
    """Nothing, if the policy can be run on the trace.

    Raises:
        ValueError: a signal that the trace lacks, drafts deeper than it holds, positions that a live run
            did not visit, or no cost model.
    """
    if policy not in (Fixed(depth=0), Fixed(depth=trace.depth)):
        trace.check_whole(type(policy).__name__)
    missing = ", ".join(sorted(policy.needs - set(trace.signals)))
    if missing and policy.max_depth > 0:
        given = ", ".join(sorted(trace.signals)) or "none"
        raise ValueError(
            f"{type(policy).__name__} needs the signal {missing}, which the trace does not hold; it holds "
            f"{given}: record one with a drafter that gives it, or choose another policy"
        )
    if policy.max_depth > trace.depth:
        raise ValueError(
            f"{type(policy).__name__} may draft up to {policy.max_depth} tokens, and the trace holds "
            f"drafts of {trace.depth}: set a depth of at most {trace.depth}, or record a deeper trace"
        )
    if policy.needs_cost and cost is None:
        raise ValueError(f"{type(policy).__name__} needs a cost model: give one, such as cost=published")


class Replayer:
    """Replays one policy.

    Args:
        trace: of all requests, which wait from the start.
        policy: the same object as in a live run, or an oracle.
        batch_size: the largest batch.
        cost: seconds of a step; also what a policy that asks for costs is given.
        prefill_chunk: prompt tokens that a pass may carry over all rows.
        demand: which requests come, and when; None: all of the trace, at the start.
        cache_tokens: tokens that all rows can hold together; None: enough.
        keep_rows: False where there are too many row-steps to keep; only sums of them are kept then.

    Raises:
        ValueError: see :func:`check_replay`; a batch size or chunk below 1, a cache that is too small.
    """

    def __init__(
        self,
        trace: AcceptanceTrace,
        policy: Policy | Oracle,
        *,
        batch_size: int,
        cost: CostModel,
        prefill_chunk: int = 512,
        demand: Demand | None = None,
        cache_tokens: int | None = None,
        keep_rows: bool = True,
    ) -> None:
        self._oracle: Oracle | None = None
        if isinstance(policy, Oracle):
            trace.check_whole(type(policy).__name__)
            self._oracle, policy = policy, Fixed(depth=0)  # which nobody asks
        check_replay(trace, policy, cost)
        for name, value in (("batch_size", batch_size), ("prefill_chunk", prefill_chunk)):
            if value < 1:
                raise ValueError(f"{name} must be >= 1, got {value}")
        self.trace, self.policy, self.cost, self.batch_size = trace, policy, cost, batch_size
        self.demand = demand or Demand.all_at_once(trace)
        self._slots = Slots(
            trace,
            self.demand,
            num_slots=batch_size,
            prefill_chunk=prefill_chunk,
            cache_tokens=cache_tokens,
        )
        self._is_timed = demand is not None  # the clock decides who is there
        self._keep_rows = keep_rows
        self._now_s = 0.0
        self._first_s = np.full(self.demand.num_requests, np.nan)
        self._last_s = np.full(self.demand.num_requests, np.nan)
        self._starts = trace.starts
        kind = type(policy)
        self._may_stop = trace.autoregressive and kind.proceed is not Policy.proceed
        self._trims = kind.trim is not Policy.trim
        self._learns = kind.observe is not Policy.observe
        self._reads = tuple(policy.needs - {Signal.DIVERGENCE})
        self._state = policy.init(batch_size)
        self._rows: list[np.ndarray] = []
        self._steps: list[tuple[int, ...]] = []

    def run(self) -> Replay:
        """To the end of all requests."""
        while self._slots.has_work:
            if self._slots.is_idle:
                self._now_s = max(self._now_s, self._slots.next_arrival_s)
            self._step(len(self._steps))
        steps = np.array(self._steps, dtype=np.int64).reshape(-1, len(STEP_FIELDS)).T
        rows = np.concatenate(self._rows, axis=1) if self._rows else np.zeros((len(ROW_FIELDS), 0), np.int64)
        named = dict(zip(STEP_FIELDS, steps, strict=True))
        time = self._time(
            *(named[name] for name in ("decode_rows", "pass_tokens", "context_tokens", "depth"))
        )
        seconds = {
            name: np.broadcast_to(getattr(time, name).double().numpy(), steps.shape[1:])
            for name in ("draft_s", "target_s", "overhead_s")
        }
        return Replay(
            trace=self.trace,
            demand=self.demand,
            first_token_s=self._first_s,
            last_token_s=self._last_s,
            batch_size=self.batch_size,
            steps=named,
            rows=dict(zip(ROW_FIELDS, rows, strict=True)),
            **seconds,
        )

    def _step(self, step: int) -> None:
        slots, trace = self._slots, self.trace
        slots.admit(self._now_s)
        decode = slots.decoding()
        prefill = slots.prefill()
        request, emitted = slots.request[decode], slots.emitted[decode]
        context = trace.prompt_tokens[request] + emitted
        remaining = trace.max_tokens[request] - context
        at = self._starts[request] + emitted - 1
        ctx = self._context(step, decode, context, remaining)
        usable = np.maximum(remaining - 1, 0)
        draft = None
        cached = int((context - 1).sum()) + prefill.context_tokens
        if self._oracle is not None:
            left = trace.output_tokens[request] - emitted - 1  # an oracle knows where the text ends
            seconds = partial(self._all_seconds, len(decode), len(decode) + prefill.num_tokens, cached)
            drafted, verified = self._oracle.depths(trace, at, np.minimum(usable, left), seconds)
            planned = allowed = drafted
        else:
            planned = self._plan(ctx)
            allowed = np.minimum(planned, usable)
            drafted, draft = self._draft(ctx, allowed, at)
            verified = drafted
        if draft is not None and self._trims:
            verified = self.policy.trim(ctx, draft, self._state).numpy()
        accepted = np.minimum(trace.accepted[at], verified)
        new = np.minimum(accepted + 1, trace.output_tokens[request] - emitted)
        depth = int(drafted.max(initial=0))
        sizes = (
            len(decode),
            len(decode) + int(verified.sum()) + prefill.num_tokens,
            cached,
            depth,
        )
        learns = self._learns and len(decode) > 0
        step_s = self._seconds(sizes) if learns or self._is_timed else 0.0
        if learns:
            self._observe(ctx, draft, verified, accepted, step_s)
        self._now_s += step_s
        sums = (int(new.sum()), int(drafted.sum()), int(verified.sum()), int(accepted.sum()))
        self._steps.append((*sizes, *sums, prefill.num_rows, prefill.num_tokens))
        if len(decode) and self._keep_rows:
            number = np.full(len(decode), step)
            columns = (number, decode, request, planned, allowed, drafted, verified, accepted, new, context)
            self._rows.append(np.stack(columns))
        self._first_s[slots.place[list(prefill.finishing)]] = self._now_s
        self._last_s[slots.commit(decode, new, prefill.finishing)] = self._now_s

    def _context(
        self, step: int, decode: np.ndarray, context: np.ndarray, remaining: np.ndarray
    ) -> StepContext:
        return StepContext(
            step=step,
            slots=torch.from_numpy(decode),
            is_new=torch.from_numpy(self._slots.is_new[decode]),
            context_lengths=torch.from_numpy(context),
            remaining_tokens=torch.from_numpy(remaining),
            depth_caps=torch.full((len(decode),), NO_CAP),
            num_slots=self.batch_size,
            cost=self.cost,
        )

    def _plan(self, ctx: StepContext) -> np.ndarray:
        if ctx.num_rows == 0:
            return np.zeros(0, dtype=np.int64)
        return self.policy.plan(ctx, self._state).numpy()

    def _draft(
        self, ctx: StepContext, allowed: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray, Draft | None]:
        """Tokens drafted [B], and the draft that a policy sees; None where every row has depth 0."""
        depth = int(allowed.max(initial=0))
        if depth == 0:
            return np.zeros_like(allowed), None
        lengths = np.minimum(allowed, self.trace.drafted[at])
        signals = {signal: torch.from_numpy(self.trace.signals[signal][at, :depth]) for signal in self._reads}
        if self._may_stop:
            lengths = self._stopped(ctx, lengths, signals)
        kept = torch.from_numpy(lengths)
        if not (self._trims or self._learns):
            return lengths, Draft(tokens=kept[:, None], lengths=kept, q=None)  # nobody looks at it
        past = torch.arange(depth) >= kept[:, None]
        return lengths, Draft(
            tokens=torch.full((len(lengths), depth), NO_TOKEN),
            lengths=kept,
            q=None,
            signals={signal: values.masked_fill(past, torch.nan) for signal, values in signals.items()},
        )

    def _stopped(self, ctx: StepContext, limits: np.ndarray, signals: Mapping[Signal, Tensor]) -> np.ndarray:
        """Lengths [B] where the policy is asked after every token, up to the limits."""
        lengths = np.minimum(limits, 1)
        for k in range(1, int(limits.max(initial=0)) + 1):
            past = torch.arange(k) >= torch.from_numpy(lengths)[:, None]
            seen = {signal: values[:, :k].masked_fill(past, torch.nan) for signal, values in signals.items()}
            goes_on = self.policy.proceed(ctx, k, seen, self._state).numpy()
            goes_on = goes_on & (lengths == k) & (limits > k)
            if not goes_on.any():
                break
            lengths = lengths + goes_on
        return lengths

    def _observe(
        self,
        ctx: StepContext,
        draft: Draft | None,
        verified: np.ndarray,
        accepted: np.ndarray,
        step_s: float,
    ) -> None:
        counts = torch.from_numpy(accepted)
        verdict = Verdict(
            verify_lengths=torch.from_numpy(verified),
            accepted=counts,
            next_token=torch.full_like(counts, NO_TOKEN),
            step_time_s=step_s,
            draft=draft,
        )
        self._state = self.policy.observe(ctx, verdict, self._state)

    def _all_seconds(
        self, rows: int, plain: int, context: int, verified: np.ndarray, depth: np.ndarray
    ) -> np.ndarray:
        """Seconds of steps that differ in verified drafts and depth, which broadcast."""
        time = self._time(np.array(rows), plain + verified, np.array(context), depth)
        return time.total_s.double().numpy()

    def _seconds(self, sizes: tuple[int, int, int, int]) -> float:
        return float(self._time(*(np.array(size) for size in sizes)).total_s)

    def _time(
        self, decode_rows: np.ndarray, tokens: np.ndarray, context: np.ndarray, depth: np.ndarray
    ) -> StepTime:
        sizes = (torch.from_numpy(np.asarray(size)) for size in (decode_rows, tokens, context, depth))
        return self.cost.step_time_s(**dict(zip(_SIZES, sizes, strict=True)))


_SIZES = ("decode_rows", "tokens", "context_tokens", "draft_tokens")


def replay(
    trace: AcceptanceTrace,
    policy: Policy | Oracle,
    *,
    batch_size: int,
    cost: CostModel,
    prefill_chunk: int = 512,
) -> Replay:
    """What ``policy`` does on ``trace``; see :class:`Replayer`."""
    return Replayer(trace, policy, batch_size=batch_size, cost=cost, prefill_chunk=prefill_chunk).run()
