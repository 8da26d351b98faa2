"""The perturbation test on real steps: draw x_k anew, and see whether k is still verified.

A policy runs in the engine with a drafter that samples. Of every step the drafter's input, the
policy's context and its state are kept. Then, for a row and a position k, x_k is drawn again from
the drafter's own law of it, what follows x_k is drafted again by the model, and the policy is asked
what it would verify: the answer about position k must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.analysis.audit.decide import Facts, Step, decided, with_another_token
from dspark.analysis.audit.redraft import Begun, completed
from dspark.analysis.audit.watching import WatchedDrafter, WatchedPolicy
from dspark.engine.assembly import usable_depth
from dspark.engine.engine import Engine
from dspark.policies.check import check_policy
from dspark.types import LosslessClass, SamplingParams
from dspark.verification import Coupled, Rejection
from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.cost.base import CostModel
    from dspark.models.base import Target
    from dspark.models.target import HFTarget
    from dspark.policies.base import Policy, State
    from dspark.types import Draft, StepContext

NUM_ROWS = 3
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
    check_policy(policy, WatchedDrafter(model), cost_available=True)
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
    watched, drafter = WatchedPolicy(policy), WatchedDrafter(model)
    # the engine refuses class D under rejection sampling; what is verified is decided alike under both
    rule = Coupled() if policy.lossless_class is LosslessClass.SAMPLED else Rejection()
    engine = Engine(
        target, drafter, watched, verification=rule, max_batch_size=NUM_ROWS, cost=cost, seed=seed
    )
    # plain text, because a template's own words would take most of so short a beginning
    texts = encode_prompts(load_prompts(PromptSpec())[:num_steps], target.tokenizer, chat_template=False)
    prompts = [ids[:PROMPT_TOKENS] for ids in texts]
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
    """Places (row, k) by step: first those where a verified draft ends, which most rules decide at.

    Every place follows recorded tokens only, which is what stays fixed.
    """
    edges, others = [], []
    for number, step in enumerate(seen):
        verified = policy.trim(step.ctx, step.draft, step.state).tolist()
        reach = torch.minimum(_allowed(policy, step), step.draft.lengths + 1).tolist()
        for row, num_places in enumerate(reach):
            for k in range(num_places):
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
    drafted = zip(seen.draft.tokens.tolist(), seen.draft.lengths.tolist(), strict=True)
    drafts = [tokens[:length] for tokens, length in drafted]
    begun = [Begun(committed=seen.committed[row], drafts=drafts[row]) for row in range(num_rows)]
    begun += [Begun(committed=seen.committed[row], drafts=drafts[row][:k]) for row, k in places]
    width, with_q = int(step.allowed.max()), seen.draft.q is not None
    facts = completed(model, begun, width, policy.needs, generator, with_q=with_q)
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


def _rows(facts: Facts, index: list[int]) -> Facts:
    """The facts of some rows."""
    return Facts(
        tokens=facts.tokens[index],
        q=None if facts.q is None else facts.q[index],
        signals={name: values[index] for name, values in facts.signals.items()},
    )
