"""A policy's own hooks, unchanged, on a toy world: one step at a time, with exact chances.

The order of a step is the engine's: plan, clamp, draft (asking ``proceed`` where the drafter is
autoregressive), trim, verify, observe. What is drawn in the engine is enumerated here, or sampled
where only one course of events is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import torch

from dspark.analysis.audit.toy_drafter import ToyDrafter
from dspark.engine.assembly import NO_CAP, check_depths, usable_depth
from dspark.policies.base import Policy
from dspark.types import Draft, Signal, StepContext, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from dspark.analysis.audit.rules import End, ExactRule, Known
    from dspark.analysis.audit.tables import Path
    from dspark.analysis.audit.world import World
    from dspark.policies.base import State

NUM_PROMPT = 8
"""Tokens of every prompt; policies see context lengths."""

ONE = Fraction(1)


class Pick(Protocol):
    """Which of some chances (``Drawn`` or ``End``) are followed, and with what weight."""

    def __call__(self, chances: Sequence[Any]) -> list[tuple[Any, Fraction]]:
        """Pairs of chance and weight; the weights have sum 1."""
        ...


def every(chances: Sequence[Any]) -> list[tuple[Any, Fraction]]:
    """All chances, each with its probability."""
    return [(chance, chance.probability) for chance in chances]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What there is between two steps; one entry a row of the world."""

    outputs: tuple[Path, ...]  # emitted since the enumeration began
    past: tuple[int, ...]  # tokens emitted before
    known: tuple[Known, ...]  # what the row's noise has shown
    state: State
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """A step before anything is drafted; one entry a row that still runs."""

    rows: tuple[int, ...]  # their indices in the world
    outputs: tuple[Path, ...]
    ctx: StepContext
    state: State
    allowed: tuple[int, ...]  # depths after the clamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """One joint draft of a step, and how much of it the policy lets the target see."""

    drafting: Drafting
    drafts: tuple[Path, ...]
    lengths: tuple[int, ...]  # verify lengths
    weight: Fraction
    known: tuple[Known, ...]
    record: Draft | None  # None where no row has a depth


@dataclass(frozen=True, slots=True)
class _Partial:
    """A joint draft in the making."""

    drafts: tuple[Path, ...]
    known: tuple[Known, ...]
    weight: Fraction
    going: tuple[bool, ...]


class Drive:
    """The steps that a policy can take in a world under a rule.

    Attributes:
        learns: the policy's state changes from step to step.
    """

    def __init__(self, policy: Policy, world: World, rule: ExactRule) -> None:
        self.policy, self.world, self.rule = policy, world, rule
        self._drafter = ToyDrafter(world, policy.needs - {Signal.DIVERGENCE})
        self._tells_q = rule.tells_q and not world.deterministic
        self.learns = type(policy).observe is not Policy.observe
        self._ends: dict[tuple[int, Path, Path, Known], list[End]] = {}

    def begin(self) -> Situation:
        """The situation before the first step of new requests."""
        num_rows = len(self.world.requests)
        return Situation(
            outputs=((),) * num_rows,
            past=(0,) * num_rows,
            known=((),) * num_rows,
            state=self.policy.init(num_rows),
            step=0,
        )

    def is_over(self, situation: Situation) -> bool:
        """True where every row has emitted its tokens."""
        return all(len(output) == self.world.horizon for output in situation.outputs)

    def step(self, situation: Situation, pick: Pick = every) -> Iterator[tuple[Situation, Fraction]]:
        """Situations that the next step can lead to, with their weights.

        Raises:
            ValueError: the policy answers with what is no depth.
        """
        for decided in self.decide(situation, pick):
            yield from self._verify(situation, decided, pick)

    def decide(self, situation: Situation, pick: Pick = every) -> Iterator[Decided]:
        """Every joint draft of the next step, with its verify lengths.

        Raises:
            ValueError: the policy answers with what is no depth.
        """
        drafting = self._plan(situation)
        rows, width = drafting.rows, max(drafting.allowed)
        known = tuple(situation.known[row] for row in rows)
        for partial in self._drafts(drafting, known, pick):
            record, lengths = None, (0,) * len(rows)
            if width:
                record = self._drafter.draft(
                    rows, drafting.outputs, partial.drafts, width, with_q=self._tells_q
                )
                trim = self.policy.trim(drafting.ctx, record, situation.state)
                check_depths("trim", trim, drafting.ctx, record.lengths, self.policy)
                lengths = tuple(trim.tolist())
            yield Decided(
                drafting=drafting,
                drafts=partial.drafts,
                lengths=lengths,
                weight=partial.weight,
                known=partial.known,
                record=record,
            )

    def _plan(self, situation: Situation) -> Drafting:
        """The rows that still run, what the policy may know of them, and their depths."""
        horizon = self.world.horizon
        rows = tuple(row for row, output in enumerate(situation.outputs) if len(output) < horizon)
        emitted = torch.tensor([len(situation.outputs[row]) for row in rows])
        ctx = StepContext(
            step=situation.step,
            slots=torch.tensor(rows),
            is_new=torch.full((len(rows),), situation.step == 0),
            context_lengths=NUM_PROMPT + torch.tensor([situation.past[row] for row in rows]) + emitted,
            remaining_tokens=horizon - emitted,
            depth_caps=torch.full((len(rows),), NO_CAP),
            num_slots=len(situation.outputs),
            cost=self.world.cost,
        )
        plan = self.policy.plan(ctx, situation.state)
        check_depths("plan", plan, ctx, self.policy.max_depth, self.policy)
        return Drafting(
            rows=rows,
            outputs=tuple(situation.outputs[row] for row in rows),
            ctx=ctx,
            state=situation.state,
            allowed=tuple(torch.minimum(plan, usable_depth(ctx, None)).tolist()),
        )

    def _drafts(self, drafting: Drafting, known: tuple[Known, ...], pick: Pick) -> Iterator[_Partial]:
        """Joint drafts of the rows."""
        num_rows = len(drafting.rows)
        going = tuple(depth > 0 for depth in drafting.allowed)
        partials = [_Partial(((),) * num_rows, known, ONE, going)]
        for k in range(1, max(drafting.allowed) + 1):
            longer = []
            for partial in partials:
                if any(partial.going):
                    longer += self._one_token(drafting, partial, k, pick)
                else:
                    yield partial
            partials = longer
        yield from partials

    def _one_token(self, drafting: Drafting, partial: _Partial, k: int, pick: Pick) -> Iterator[_Partial]:
        """The joint draft with a k-th token where a row is going."""
        options = []
        for i, row in enumerate(drafting.rows):
            draft, known = partial.drafts[i], partial.known[i]
            if not partial.going[i]:
                options.append([(draft, known, ONE)])
                continue
            law = self.world.draft_law(row, (*drafting.outputs[i], *draft))
            drawn = pick(self.rule.draw(law, len(draft), known))
            options.append([((*draft, d.token), d.known, weight) for d, weight in drawn])
        for combination in product(*options):
            drafts, known, weights = zip(*combination, strict=True)
            weight = prod(weights, start=partial.weight)
            yield _Partial(drafts, known, weight, self._going_on(drafting, drafts, k))

    def _going_on(self, drafting: Drafting, drafts: tuple[Path, ...], k: int) -> tuple[bool, ...]:
        """Which rows draft on after depth k."""
        lengths = [len(draft) for draft in drafts]
        may = [length == k and depth > k for length, depth in zip(lengths, drafting.allowed, strict=True)]
        if not self.world.autoregressive or not any(may):
            return tuple(may)
        signals = self._drafter.signals(drafting.rows, drafting.outputs, drafts, k)
        goes_on = self.policy.proceed(drafting.ctx, k, signals, drafting.state).tolist()
        return tuple(a and b for a, b in zip(may, goes_on, strict=True))

    def _verify(
        self, situation: Situation, decided: Decided, pick: Pick
    ) -> Iterator[tuple[Situation, Fraction]]:
        """Situations after the target's pass over one joint draft."""
        rows = decided.drafting.rows
        options = [pick(self._ends_of(decided, i)) for i in range(len(rows))]
        for combination in product(*options):
            ends = [end for end, _ in combination]
            outputs, known = list(situation.outputs), list(situation.known)
            for row, draft, end in zip(rows, decided.drafts, ends, strict=True):
                outputs[row] = (*outputs[row], *draft[: end.accepted], end.next_token)
                known[row] = end.known
            after = replace(situation, outputs=tuple(outputs), known=tuple(known), step=situation.step + 1)
            # the state after the last step is of no use to anybody
            if self.learns and not self.is_over(after):
                verdict = self._verdict(decided, ends)
                state = self.policy.observe(decided.drafting.ctx, verdict, situation.state)
                after = replace(after, state=state)
            yield after, prod((share for _, share in combination), start=decided.weight)

    def _ends_of(self, decided: Decided, i: int) -> list[End]:
        """What verifying the i-th running row may come to."""
        row, output = decided.drafting.rows[i], decided.drafting.outputs[i]
        drafts = decided.drafts[i][: decided.lengths[i]]
        key = (row, output, drafts, decided.known[i])
        if key not in self._ends:
            target = self.world.requests[row].target
            paths = [(*output, *drafts[:k]) for k in range(len(drafts) + 1)]
            p = [target[path] for path in paths]
            q = [self.world.draft_law(row, path) for path in paths[:-1]]
            self._ends[key] = self.rule.ends(drafts, p, q, decided.known[i])
        return self._ends[key]

    def _verdict(self, decided: Decided, ends: list[End]) -> Verdict:
        """What the policy learns from a step."""
        ctx, lengths = decided.drafting.ctx, torch.tensor(decided.lengths)
        time = self.world.cost.step_time_s(
            decode_rows=torch.tensor(ctx.num_rows),
            tokens=ctx.num_rows + lengths.sum(),
            context_tokens=ctx.context_lengths.sum(),
            draft_tokens=torch.tensor(max(len(draft) for draft in decided.drafts)),
        )
        reads_divergence = decided.record is not None and Signal.DIVERGENCE in self.policy.needs
        return Verdict(
            verify_lengths=lengths,
            accepted=torch.tensor([end.accepted for end in ends]),
            next_token=torch.tensor([end.next_token for end in ends]),
            step_time_s=float(time.total_s),
            draft=decided.record,
            divergence=self._divergence(decided) if reads_divergence else None,
        )

    def _divergence(self, decided: Decided) -> Tensor:
        """KL(q || p) of the verified positions [B, K], or -log p of the token where no q is told."""
        drafting = decided.drafting
        found = torch.full((len(drafting.rows), max(drafting.allowed)), torch.nan)
        for i, (row, output) in enumerate(zip(drafting.rows, drafting.outputs, strict=True)):
            for k, token in enumerate(decided.drafts[i][: decided.lengths[i]]):
                path = (*output, *decided.drafts[i][:k])
                p = torch.tensor([float(x) for x in self.world.requests[row].target[path]])
                q = torch.tensor([float(x) for x in self.world.draft_law(row, path)])
                kl = torch.xlogy(q, q / p).sum() if self._tells_q else -p[token].log()
                found[i, k] = kl
        return found
