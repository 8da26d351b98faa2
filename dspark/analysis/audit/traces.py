"""The perturbation test on real steps: draw x_k anew, and see whether k is still verified.

A policy runs in the engine with a drafter that samples. Of every step the drafter's input, the
policy's context and its state are kept. Then, for a row and a position k, x_k is drawn again from
the drafter's own law of it, what follows x_k is drafted again by the model, and the policy is asked
what it would verify: the answer about position k must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from dspark.analysis.audit.decide import Facts, Step, decided, with_another_token
from dspark.drafters.base import DraftBatch, Drafter, Proceed
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.signals import LogitSignals
from dspark.engine.assembly import usable_depth
from dspark.engine.engine import Engine
from dspark.models.base import PassRow
from dspark.policies.base import Policy
from dspark.policies.check import check_policy
from dspark.types import Draft, LosslessClass, SamplingParams, Signal
from dspark.verification import Coupled, Rejection
from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from dspark.cost.base import CostModel
    from dspark.models.base import Target
    from dspark.models.target import HFTarget
    from dspark.policies.base import State
    from dspark.types import StepContext, Verdict

NUM_ROWS = 3
MAX_REQUESTS = 60  # there are as many built-in prompts
PROMPT_TOKENS = 24
SAMPLED = SamplingParams(temperature=1.0, max_new_tokens=48, ignore_eos=True, max_depth=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFlip:
    """A decision that another token changed."""

    row: int
    position: int  # from 1
    token: int
    verified: int  # verify length with it
    other_token: int
    other_verified: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceResult:
    """What a perturbation test saw."""

    num_steps: int  # with a draft
    num_decisions: int  # positions asked about again
    flips: tuple[TraceFlip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One recorded step."""

    ctx: StepContext
    state: State
    committed: list[list[int]]  # tokens of each row
    draft: Draft


def perturb(
    policy: Policy,
    target: HFTarget,
    model: Target,
    *,
    cost: CostModel,
    num_steps: int,
    num_redraws: int,
    seed: int,
) -> TraceResult:
    """What redrawing tokens of real steps does to the policy's decisions about them.

    Args:
        policy: asked at temperature 1.
        target: verifies.
        model: drafts.
        cost: for policies that need one.
        num_steps: steps of the engine, on the beginnings of the built-in prompts.
        num_redraws: positions drawn again, at most; spread over the steps.
        seed: of prompts, requests and redraws.

    Raises:
        ValueError: policy and drafter do not fit together.
    """
    check_policy(policy, _Watching(model), cost_available=True)
    seen = _record(policy, target, model, cost=cost, num_steps=num_steps, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    chosen = _choose(policy, seen, num_redraws, generator)
    flips = [
        flip
        for number, at in sorted(chosen.items())
        for flip in _redraw(policy, model, seen[number], at, generator)
    ]
    num_decisions = sum(map(len, chosen.values()))
    return TraceResult(num_steps=len(seen), num_decisions=num_decisions, flips=tuple(flips))


def _record(
    policy: Policy, target: HFTarget, model: Target, *, cost: CostModel, num_steps: int, seed: int
) -> list[_Seen]:
    """The steps of a run in which something was drafted."""
    watched, drafter = _Watched(policy), _Watching(model)
    # the engine refuses class D under rejection sampling; what is verified is decided alike under both
    rule = Coupled() if policy.lossless_class is LosslessClass.SAMPLED else Rejection()
    engine = Engine(
        target, drafter, watched, verification=rule, max_batch_size=NUM_ROWS, cost=cost, seed=seed
    )
    texts = load_prompts(PromptSpec(num_requests=min(num_steps, MAX_REQUESTS)))
    prompts = [ids[:PROMPT_TOKENS] for ids in encode_prompts(texts, target.tokenizer)]
    for request in engine.requests.make(prompts, SAMPLED):
        engine.add(request)
    seen = []
    for _ in range(num_steps):
        engine.step()
        last = watched.taken()
        if last is not None:
            assert drafter.committed is not None, "a draft without a drafter's input"
            ctx, draft, state = last
            seen.append(_Seen(ctx=ctx, state=state, committed=drafter.committed, draft=draft))
    return seen


def _choose(
    policy: Policy, seen: Sequence[_Seen], count: int, generator: torch.Generator
) -> dict[int, list[tuple[int, int]]]:
    """Places (row, k) by step: first those where a verified draft ends, which most rules decide at."""
    edges, others = [], []
    for number, step in enumerate(seen):
        verified = policy.trim(step.ctx, step.draft, step.state).tolist()
        for row, depth in enumerate(_allowed(policy, step).tolist()):
            for k in range(depth):
                (edges if k in (verified[row] - 1, verified[row]) else others).append((number, row, k))
    chosen: dict[int, list[tuple[int, int]]] = {}
    for places in (edges, others):
        order = torch.randperm(len(places), generator=generator).tolist()
        for number, row, k in (places[i] for i in order[:count]):
            chosen.setdefault(number, []).append((row, k))
        count -= min(count, len(places))
    return chosen


def _allowed(policy: Policy, seen: _Seen) -> Tensor:
    """Int [B], the depths of the step after the clamp."""
    return torch.minimum(policy.plan(seen.ctx, seen.state), usable_depth(seen.ctx, None))


def _redraw(
    policy: Policy,
    model: Target,
    seen: _Seen,
    places: Sequence[tuple[int, int]],
    generator: torch.Generator,
) -> list[TraceFlip]:
    """Flips among the places (row, k) of one step; k drafts precede the position."""
    step = Step(ctx=seen.ctx, state=seen.state, allowed=_allowed(policy, seen), autoregressive=True)
    num_rows = len(seen.committed)
    drafts = [tokens[:n] for tokens, n in zip(seen.draft.tokens.tolist(), seen.draft.lengths, strict=True)]
    begun = [_Begun(committed=seen.committed[row], drafts=drafts[row]) for row in range(num_rows)]
    begun += [_Begun(committed=seen.committed[row], drafts=drafts[row][:k]) for row, k in places]
    facts = _complete(
        model, begun, int(step.allowed.max()), policy.needs, generator, with_q=seen.draft.q is not None
    )
    original = _rows(facts, list(range(num_rows)))
    _, before = decided(policy, step, original)
    flips = []
    for i, (row, k) in enumerate(places):
        other = _rows(facts, [num_rows + i if j == row else j for j in range(num_rows)])
        changed = with_another_token(original, other, row, k)
        _, after = decided(policy, step, changed)
        if bool(after[row] > k) is not bool(before[row] > k):
            flip = TraceFlip(
                row=row,
                position=k + 1,
                token=int(original.tokens[row, k]),
                verified=int(before[row]),
                other_token=int(changed.tokens[row, k]),
                other_verified=int(after[row]),
            )
            flips.append(flip)
    return flips


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A row's draft in the making."""

    committed: list[int]
    drafts: list[int]


def _complete(
    model: Target,
    begun: Sequence[_Begun],
    width: int,
    needs: frozenset[Signal],
    generator: torch.Generator,
    *,
    with_q: bool,
) -> Facts:
    """The drafts completed to ``width`` tokens by the model's own law, with everything said about them."""
    cache = model.new_cache(len(begun), max(len(row.committed) for row in begun) + width)
    passes = [
        PassRow(slot=i, start=0, token_ids=[*row.committed, *row.drafts], num_logits=len(row.drafts) + 1)
        for i, row in enumerate(begun)
    ]
    drafts = [list(row.drafts) for row in begun]
    logits: list[list[Tensor]] = [[] for _ in begun]
    while passes:
        for row in passes:
            cache.reserve(row.slot, row.start + len(row.token_ids))
        found = iter(model.forward(passes, cache).float().cpu())
        for row in passes:
            logits[row.slot] += [next(found) for _ in range(row.num_logits)]
        passes = [
            _next_pass(i, row, drafts[i], logits[i][-1], generator)
            for i, row in enumerate(begun)
            if len(drafts[i]) < width
        ]
    return _facts(
        torch.tensor(drafts), torch.stack([torch.stack(row[:width]) for row in logits]), needs, with_q
    )


def _next_pass(
    slot: int, row: _Begun, drafts: list[int], logits: Tensor, generator: torch.Generator
) -> PassRow:
    """Draws the row's next token, which joins ``drafts``; the pass that takes it in."""
    start = len(row.committed) + len(drafts)
    drafts.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
    return PassRow(slot=slot, start=start, token_ids=drafts[-1:], num_logits=1)


def _facts(tokens: Tensor, logits: Tensor, needs: frozenset[Signal], with_q: bool) -> Facts:
    """What the drafter says about tokens [n, K] that it drew from logits [n, K, V]."""
    num_rows, width = tokens.shape
    signals = LogitSignals(num_rows, width, _read_for(needs), logits.device)
    for k in range(width):
        signals.record(torch.arange(num_rows), k + 1, logits[:, k], tokens[:, k])
    q = logits.softmax(-1) if with_q else None
    return Facts(tokens=tokens, q=q, signals=_with_confidence(signals.all(), needs))


def _rows(facts: Facts, index: list[int]) -> Facts:
    """The facts of some rows."""
    return Facts(
        tokens=facts.tokens[index],
        q=None if facts.q is None else facts.q[index],
        signals={name: values[index] for name, values in facts.signals.items()},
    )


def _read_for(needs: frozenset[Signal]) -> frozenset[Signal]:
    """Signals to ask of a draft model, which has no confidence head."""
    top1 = {Signal.TOP1_PROBABILITY} if Signal.CONFIDENCE in needs else set()
    return (needs & DraftModelDrafter.signals) | top1


def _with_confidence(signals: Mapping[Signal, Tensor], needs: frozenset[Signal]) -> dict[Signal, Tensor]:
    """The signals in need; the largest probability of q stands in for a confidence head."""
    found = {name: values for name, values in signals.items() if name in needs}
    if Signal.CONFIDENCE in needs:
        found[Signal.CONFIDENCE] = signals[Signal.TOP1_PROBABILITY]
    return found


class _Watching(Drafter):
    """A draft model with a stand-in confidence head, whose last input can be read."""

    signals = DraftModelDrafter.signals | {Signal.CONFIDENCE}
    deterministic = False
    autoregressive = True

    def __init__(self, model: Target) -> None:
        self._inner = DraftModelDrafter(model)
        self.vocab_size, self.max_context = model.vocab_size, model.max_context
        self.committed: list[list[int]] | None = None

    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """As the draft model does."""
        self._inner.open(num_slots, max_depth, max_context)

    def release(self, slot: int) -> None:
        """As the draft model does."""
        self._inner.release(slot)

    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """The draft model's draft."""
        self.committed = [list(tokens) for tokens in batch.tokens]
        needs = batch.needs
        draft = self._inner.propose(
            replace(batch, needs=_read_for(needs)),
            plan,
            lambda k, signals: proceed(k, _with_confidence(signals, needs)),
        )
        return replace(draft, signals=_with_confidence(draft.signals, needs))


class _Watched(Policy):
    """A policy whose last step can be read."""

    needs_cost: ClassVar[bool] = True  # there is one

    def __init__(self, policy: Policy) -> None:
        self._inner = policy
        self._last: tuple[StepContext, Draft, State] | None = None

    def taken(self) -> tuple[StepContext, Draft, State] | None:
        """What ``trim`` was asked since this was called last, if it was."""
        last, self._last = self._last, None
        return last

    @property
    def lossless_class(self) -> LosslessClass:
        """The policy's."""
        return self._inner.lossless_class

    @property
    def max_depth(self) -> int:
        """The policy's."""
        return self._inner.max_depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The policy's."""
        return self._inner.needs

    def init(self, num_slots: int) -> State:
        """The policy's."""
        return self._inner.init(num_slots)

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """The policy's."""
        return self._inner.plan(ctx, state)

    def proceed(self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: State) -> Tensor:
        """The policy's."""
        return self._inner.proceed(ctx, k, signals, state)

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """The policy's."""
        self._last = ctx, draft, state
        return self._inner.trim(ctx, draft, state)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The policy's."""
        return self._inner.observe(ctx, verdict, state)
