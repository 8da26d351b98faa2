"""The batched speculation engine: one step drafts for all rows and verifies them in one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from dspark.drafters.base import DraftBatch
from dspark.engine.assembly import (
    HOST,
    check_depths,
    decode_part,
    idle_record,
    on_host,
    pass_rows,
    row_records,
    step_context,
    step_record,
    step_sizes,
    usable_depth,
    verified_tokens,
)
from dspark.engine.checks import check_parts, check_sampling
from dspark.engine.clock import Clock, StepTimer, WallClock
from dspark.engine.requests import Prompt, RequestFactory, sampled_row
from dspark.engine.scheduler import Scheduler
from dspark.policies.fixed import Fixed
from dspark.types import Completion, FinishReason, SamplingParams, Signal, StepRecord, TokenChunk
from dspark.verification import Rejection
from dspark.verification.divergence import divergence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from dspark.cost.base import CostModel
    from dspark.drafters.base import Drafter
    from dspark.engine.scheduler import Batch
    from dspark.engine.sequence import Sequence as Row
    from dspark.models.kv_cache import KVCache
    from dspark.models.target import HFTarget
    from dspark.policies.base import Policy, State
    from dspark.types import Draft, Request, StepContext, Verdict
    from dspark.verification.base import SampledRow, Verification

PLAIN = Fixed(depth=0)
GREEDY = SamplingParams()


class Engine:
    """Continuous batching with a depth of its own for every row and step.

    Args:
        target: the model whose output law the text follows.
        drafter: proposes tokens; None for plain decoding.
        policy: decides how far to draft and how much to verify.
        verification: the acceptance rule; token-wise rejection sampling by default.
        max_batch_size: rows of a step.
        max_tokens_per_row: cached tokens a row may need; sized by the requests if None.
        prefill_chunk: prompt tokens a pass may carry.
        cost: cost model for policies that need one.
        clock: where seconds come from; the wall by default.
        seed: requests without a seed derive theirs from it and their id.

    Raises:
        ValueError: the parts do not fit together (signals, vocabulary, losslessness).
    """

    def __init__(
        self,
        target: HFTarget,
        drafter: Drafter | None = None,
        policy: Policy = PLAIN,
        *,
        verification: Verification | None = None,
        max_batch_size: int = 16,
        max_tokens_per_row: int | None = None,
        prefill_chunk: int = 512,
        cost: CostModel | None = None,
        clock: Clock | None = None,
        seed: int = 0,
    ) -> None:
        if max_batch_size < 1 or prefill_chunk < 1:
            raise ValueError(
                f"max_batch_size and prefill_chunk must be >= 1, got {max_batch_size} and {prefill_chunk}"
            )
        self.target, self.drafter, self.policy = target, drafter, policy
        self.verification = verification or Rejection()
        check_parts(target, drafter, policy, self.verification, cost)
        self.max_batch_size, self.cost = max_batch_size, cost
        self.clock = clock or WallClock(target.device)
        self.completions: dict[str, Completion] = {}
        self._scheduler = Scheduler(num_slots=max_batch_size, prefill_chunk=prefill_chunk)
        self.requests = RequestFactory(target, seed=seed, max_tokens_per_row=max_tokens_per_row)
        self._cache: KVCache | None = None
        self._state = policy.init(max_batch_size)
        self._step = 0
        self._row_tokens = 0  # room that the requests of a run are known to need
        self._chunks: list[TokenChunk] = []  # of requests that ended between steps

    @property
    def has_work(self) -> bool:
        """True while a request waits or runs."""
        return self._scheduler.has_work or bool(self._chunks)

    @property
    def policy_state(self) -> State:
        """What the policy's state is after the last step; the engine does not look inside."""
        return self._state

    def add(self, request: Request, *, arrived_s: float | None = None) -> None:
        """Queue a request; latencies count from its ``arrival_s`` after ``arrived_s``, or from now.

        Raises:
            ValueError: empty or too long prompt, id in use, or sampling that the rule refuses.
        """
        self._check(request)
        arrival_s = self.clock.now_s() if arrived_s is None else arrived_s + request.arrival_s
        self._scheduler.waiting.append(self.requests.sequence(request, arrival_s))

    def _check(self, request: Request) -> None:
        request_id = request.request_id
        if request_id in self.completions or self._scheduler.find(request_id) is not None:
            raise ValueError(
                f"request ids must be unique, got {request_id!r} twice; give each request its own id"
            )
        check_sampling(request.params, self.drafter, self.policy, self.verification)
        self.requests.check(request)

    def cancel(self, request_id: str) -> None:
        """End a waiting or running request; what it emitted so far is its completion.

        Raises:
            ValueError: no such request is waiting or running.
        """
        sequence = self._scheduler.find(request_id)
        if sequence is None:
            raise ValueError(f"only a waiting or running request can be cancelled, got {request_id!r}")
        sequence.finish_reason = FinishReason.CANCELLED
        sequence.last_token_s = self.clock.now_s()
        if sequence.slot < 0:
            self._scheduler.waiting.remove(sequence)
        else:
            self._leave(sequence)
        self._chunks.append(self._finish(sequence, ()))

    @torch.inference_mode()
    def step(self) -> StepRecord:
        """Draft, verify and commit once for every running row, and admit waiting requests."""
        timer = StepTimer(self.clock)
        self._admit()
        batch = self._scheduler.schedule()
        if not batch.decode and not batch.prefill:
            return self._idle_step(timer)
        sampled = [sampled_row(s) for s in (*batch.decode, *batch.finishing)]
        ctx = step_context(
            batch.decode,
            step=self._step,
            num_slots=self.max_batch_size,
            cost=self.cost,
            device=HOST,
        )
        timer.lap("rest")
        plan, allowed = self._plan(ctx)
        timer.lap("policy")
        draft = self._propose(ctx, sampled[: len(batch.decode)], allowed)
        timer.lap("draft")
        lengths = self._trim(ctx, draft)
        timer.lap("policy")
        tokens = verified_tokens(draft, lengths, len(batch.decode))
        rows = pass_rows(batch, tokens)
        sizes = step_sizes(batch, rows, draft)
        timer.lap("rest")
        logits = self._forward(rows)
        timer.lap("target")
        timer.charge(sizes)
        verify_lengths = pad(lengths, (0, len(batch.finishing))) if batch.finishing else lengths
        verdict = on_host(self.verification.verify(sampled, draft, verify_lengths, logits))
        timer.lap("verify")
        decode_verdict = replace(
            decode_part(verdict, len(batch.decode)),
            step_time_s=timer.elapsed_s,
            draft=draft,
            divergence=self._divergence(sampled[: len(batch.decode)], draft, lengths, logits),
        )
        if batch.decode:
            self._state = self.policy.observe(ctx, decode_verdict, self._state)
        timer.lap("policy")
        contexts = [len(s.tokens) for s in batch.decode]
        emitted, chunks = self._commit(batch, tokens, verdict)
        timer.lap("rest")
        self._step += 1
        records = row_records(
            batch, plan.tolist(), allowed.tolist(), draft, decode_verdict, contexts, emitted
        )
        return step_record(self._step - 1, batch, sizes, records, chunks, timer)

    def _idle_step(self, timer: StepTimer) -> StepRecord:
        """A step without a pass: nobody runs, only chunks of cancelled requests are handed out."""
        chunks, self._chunks = tuple(self._chunks), []
        timer.lap("rest")
        return idle_record(self._step, chunks, timer)

    def _admit(self) -> None:
        """Give waiting requests their slots, growing an idle cache to what they need."""
        waiting = self._scheduler.waiting
        if waiting and not self._scheduler.running:
            needed = max(self._row_tokens, *(s.max_tokens for s in waiting))
            if self._cache is None or self._cache.max_tokens < needed:
                self._cache = self.target.new_cache(self.max_batch_size, self.requests.row_tokens(needed))
                self._open_drafter(self._cache)
        cache = self._cache
        if cache is None:
            return
        self._scheduler.admit(
            lambda s, slot: s.max_tokens <= cache.max_tokens and cache.reserve(slot, s.max_tokens)
        )

    def _open_drafter(self, cache: KVCache) -> None:
        if self.drafter is not None:
            self.drafter.open(self.max_batch_size, self.policy.max_depth, cache.max_tokens)

    def _plan(self, ctx: StepContext) -> tuple[Tensor, Tensor]:
        """The policy's depth [B] and what of it each row can use."""
        if ctx.num_rows == 0 or self.drafter is None:
            return torch.zeros_like(ctx.slots), torch.zeros_like(ctx.slots)
        plan = self.policy.plan(ctx, self._state)
        if check_depths("plan", plan, ctx, self.policy.max_depth, self.policy) == 0:
            return plan, plan  # nothing to cut
        return plan, torch.minimum(plan, usable_depth(ctx, self.drafter.max_context))

    def _propose(self, ctx: StepContext, sampled: list[SampledRow], allowed: Tensor) -> Draft | None:
        """The drafter's proposal; None, and no work at all, where every row has depth 0."""
        if self.drafter is None or not bool(allowed.any()):
            return None
        batch = DraftBatch(
            slots=ctx.slots,
            tokens=[row.tokens for row in sampled],
            lengths=ctx.context_lengths,
            sampler=self.verification.draft_sampler(sampled),
            seeds=torch.tensor([row.seed for row in sampled], device=ctx.slots.device),
            needs=self.policy.needs | self.verification.needs,
        )

        def proceed(k: int, signals: Mapping[Signal, Tensor]) -> Tensor:
            go_on = self.policy.proceed(ctx, k, signals, self._state)
            if go_on.shape != ctx.slots.shape or go_on.dtype != torch.bool:
                raise ValueError(
                    f"{type(self.policy).__name__}.proceed must return one bool a decode row, shape "
                    f"[{ctx.num_rows}], got {go_on.dtype} {list(go_on.shape)}"
                )
            return go_on

        draft = self.drafter.propose(batch, allowed, proceed)
        if bool((draft.lengths > allowed).any()):
            raise ValueError(
                f"{type(self.drafter).__name__}.propose must not draft deeper than the plan "
                f"{allowed.tolist()}, got lengths {draft.lengths.tolist()}"
            )
        return draft

    def _trim(self, ctx: StepContext, draft: Draft | None) -> Tensor:
        """Verify lengths [B]."""
        if draft is None:
            return torch.zeros_like(ctx.slots)
        lengths = self.policy.trim(ctx, draft, self._state)
        check_depths("trim", lengths, ctx, draft.lengths, self.policy)
        return lengths

    def _forward(self, rows: list) -> Tensor:
        assert self._cache is not None, "a pass without a cache"
        if self.drafter is None or not (self.drafter.feature_layers and self.policy.max_depth):
            return self.target.forward(rows, self._cache)
        logits, features = self.target.forward_with_features(rows, self._cache, self.drafter.feature_layers)
        self.drafter.take_features(rows, features)
        return logits

    def _divergence(
        self, rows: list[SampledRow], draft: Draft | None, lengths: Tensor, logits: Tensor
    ) -> Tensor | None:
        """KL(q || p) of the verified positions, if the policy wants to learn from it."""
        if draft is None or Signal.DIVERGENCE not in self.policy.needs:
            return None
        return divergence(rows, draft, lengths, logits).to(HOST)

    def _commit(
        self, batch: Batch, drafts: list[list[int]], verdict: Verdict
    ) -> tuple[list[int], tuple[TokenChunk, ...]]:
        """Emitted tokens of each decode row, and every row's chunk; rows that ended have left."""
        now = self.clock.now_s()
        accepted, following = verdict.accepted.tolist(), verdict.next_token.tolist()
        candidates = [[*drafts[i][: accepted[i]], following[i]] for i in range(len(batch.decode))]
        candidates += [[token] for token in following[len(batch.decode) :]]
        for s in batch.decode:
            s.num_decode_steps += 1
        for s, count in batch.prefill:
            s.num_cached += count
        chunks, self._chunks = self._chunks, []
        emitted = []
        for s, tokens in zip((*batch.decode, *batch.finishing), candidates, strict=True):
            before = len(s.tokens)
            count = s.commit(tokens, now)
            emitted.append(count)
            s.num_cached = len(s.tokens) - 1  # the last token is the next pass's first
            new = tuple(s.tokens[before:])
            if s.finish_reason is None:
                chunks.append(TokenChunk(request_id=s.request.request_id, token_ids=new, completion=None))
            else:
                self._leave(s)
                chunks.append(self._finish(s, new))
        return emitted[: len(batch.decode)], tuple(chunks)

    def _leave(self, sequence: Row) -> None:
        assert self._cache is not None
        self._cache.release(sequence.slot)
        if self.drafter is not None:
            self.drafter.release(sequence.slot)
        self._scheduler.leave(sequence)

    def _finish(self, sequence: Row, new: tuple[int, ...]) -> TokenChunk:
        completion = sequence.completion()
        self.completions[completion.request_id] = completion
        return TokenChunk(request_id=completion.request_id, token_ids=new, completion=completion)

    def run(self, requests: Iterable[Request]) -> Iterator[StepRecord]:
        """Step until all requests have ended; each is queued once its ``arrival_s`` has come.

        With all arrivals at 0 this is a closed loop that keeps ``max_batch_size`` rows busy. Requests
        are checked before the first step. An engine that is idle begins afresh: the policy's state
        is that of ``init``.
        """
        pending = sorted(requests, key=lambda request: request.arrival_s)
        seen: set[str] = set()
        for request in pending:
            self._check(request)
            if request.request_id in seen:
                raise ValueError(f"request ids must be unique, got {request.request_id!r} twice in one run")
            seen.add(request.request_id)
        if not self.has_work:
            self._begin(pending)
        start = self.clock.now_s()
        pending.reverse()
        while pending or self.has_work:
            now = self.clock.now_s()
            while pending and start + pending[-1].arrival_s <= now:  # as it is waited for, to the last bit
                self.add(pending.pop(), arrived_s=start)
            if self.has_work:
                yield self.step()
            elif pending:
                self.clock.wait_until_s(start + pending[-1].arrival_s)

    def _begin(self, requests: list[Request]) -> None:
        """A fresh start for a run: room for its longest request, policy and drafter as if new.

        A drafter may have served another engine meanwhile, and what a policy learned from other
        requests must not change what the same call gives.
        """
        self._state = self.policy.init(self.max_batch_size)
        self._row_tokens = max((self.requests.max_tokens(request) for request in requests), default=0)
        if self._cache is not None:
            self._open_drafter(self._cache)

    def stream(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] = GREEDY
    ) -> Iterator[TokenChunk]:
        """Chunks of tokens as they are emitted; request ids are the prompts' places, "0", "1", ...

        Requests that ended are forgotten afterwards, so the ids can be used again.
        """
        requests = self.requests.make(prompts, params)
        try:
            for record in self.run(requests):
                yield from record.chunks
        finally:
            for request in requests:
                if self._scheduler.find(request.request_id) is not None:
                    self.cancel(request.request_id)
                self.completions.pop(request.request_id, None)
            self._chunks.clear()

    def generate(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] = GREEDY
    ) -> list[Completion]:
        """Completions in prompt order.

        Args:
            prompts: each a text, token ids, or chat messages (``{"role", "content"}``).
            params: for all, or one a prompt.

        Raises:
            ValueError: see :meth:`add`.
        """
        ended = [chunk.completion for chunk in self.stream(prompts, params) if chunk.completion is not None]
        by_id = {completion.request_id: completion for completion in ended}
        return [by_id[str(i)] for i in range(len(prompts))]
