"""A policy's own hooks, unchanged, on a toy world: one step at a time, with exact chances.

The order of a step is the engine's: plan, clamp, draft (asking ``proceed`` where the drafter is
autoregressive), trim, verify, observe. What is drawn in the engine is enumerated here, or sampled
where only one course of events is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Protocol

import torch

from dspark.analysis.audit.toy_drafter import ToyDrafter
from dspark.engine.assembly import NO_CAP, check_depths, usable_depth
from dspark.policies.base import Policy
from dspark.types import Draft, Signal, StepContext, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from dspark.analysis.audit.rules import Drawn, End, ExactRule, Known
    from dspark.analysis.audit.tables import Path
    from dspark.analysis.audit.world import World
    from dspark.policies.base import State

NUM_PROMPT = 8
"""Tokens of every prompt; policies see context lengths."""

ONE = Fraction(1)


class Pick(Protocol):
    """Which of some chances are followed, and with what weight."""

    def __call__(self, chances: Sequence[Drawn] | Sequence[End]) -> list[tuple[Drawn | End, Fraction]]:
        """Pairs of chance and weight; the weights have sum 1."""
        ...


def every(chances: Sequence[Drawn] | Sequence[End]) -> list[tuple[Drawn | End, Fraction]]:
    """All chances, each with its probability."""
    return [(chance, chance.probability) for chance in chances]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What there is between two steps."""

    outputs: tuple[Path, ...]  # emitted by each row since the enumeration began
    past: tuple[int, ...]  # tokens each row emitted before
    known: tuple[Known, ...]  # what each row's noise has shown
    state: State
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """One joint draft of a step, and how much of it the policy lets the target see."""

    rows: tuple[int, ...]  # indices of the rows that still run
    drafts: tuple[Path, ...]
    lengths: tuple[int, ...]  # verify lengths
    weight: Fraction
    known: tuple[Known, ...]
    ctx: StepContext
    record: Draft | None  # None where no row has a depth


class Drive:
    """The steps that a policy can take in a world under a rule."""

    def __init__(self, policy: Policy, world: World, rule: ExactRule) -> None:
        self.policy, self.world, self.rule = policy, world, rule
        self._drafter = ToyDrafter(world, policy.needs - {Signal.DIVERGENCE})
        self._learns = type(policy).observe is not Policy.observe
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
        """Situations that the next step can lead to, with their weights."""
        for decided in self.decide(situation, pick):
            yield from self._verify(situation, decided, pick)

    def decide(self, situation: Situation, pick: Pick = every) -> Iterator[Decided]:
        """Every joint draft of the next step, with its verify lengths.

        Raises:
            ValueError: the policy answers with what is no depth.
        """
        ctx, rows = self._context(situation)
        plan = self.policy.plan(ctx, situation.state)
        check_depths("plan", plan, ctx, self.policy.max_depth, self.policy)
        allowed = torch.minimum(plan, usable_depth(ctx, None)).tolist()
        width = max(allowed)
        outputs = [situation.outputs[row] for row in rows]
        known = tuple(situation.known[row] for row in rows)
        for drafts, known_after, weight in self._drafts(ctx, situation, rows, allowed, known, pick):
            record, lengths = None, (0,) * len(rows)
            if width:
                record = self._drafter.draft(rows, outputs, drafts, width, with_q=self._tells_q)
                trim = self.policy.trim(ctx, record, situation.state)
                check_depths("trim", trim, ctx, record.lengths, self.policy)
                lengths = tuple(trim.tolist())
            yield Decided(
                rows=rows,
                drafts=drafts,
                lengths=lengths,
                weight=weight,
                known=known_after,
                ctx=ctx,
                record=record,
            )

    @property
    def _tells_q(self) -> bool:
        return self.rule.tells_q and not self.world.deterministic

    def _context(self, situation: Situation) -> tuple[StepContext, tuple[int, ...]]:
        """What the policy may know, and the rows that still run."""
        lengths = [len(output) for output in situation.outputs]
        rows = tuple(row for row, length in enumerate(lengths) if length < self.world.horizon)
        emitted = torch.tensor([lengths[row] for row in rows])
        past = torch.tensor([situation.past[row] for row in rows])
        ctx = StepContext(
            step=situation.step,
            slots=torch.tensor(rows),
            is_new=torch.full((len(rows),), situation.step == 0),
            context_lengths=NUM_PROMPT + past + emitted,
            remaining_tokens=self.world.horizon - emitted,
            depth_caps=torch.full((len(rows),), NO_CAP),
            num_slots=len(lengths),
            cost=self.world.cost,
        )
        return ctx, rows

    def _drafts(
        self,
        ctx: StepContext,
        situation: Situation,
        rows: tuple[int, ...],
        allowed: list[int],
        known: tuple[Known, ...],
        pick: Pick,
    ) -> Iterator[tuple[tuple[Path, ...], tuple[Known, ...], Fraction]]:
        """Joint drafts of the rows, what they reveal, and their weights."""
        outputs = [situation.outputs[row] for row in rows]
        going = tuple(depth > 0 for depth in allowed)
        partial = [((((),) * len(rows)), known, ONE, going)]
        for k in range(1, max(allowed) + 1):
            longer = []
            for drafts, given, weight, going in partial:
                if not any(going):
                    yield drafts, given, weight
                    continue
                for drafted, revealed, share in self._one_token(rows, outputs, drafts, given, going, pick):
                    on = self._going_on(ctx, situation.state, rows, outputs, drafted, k, allowed)
                    longer.append((drafted, revealed, weight * share, on))
            partial = longer
        for drafts, given, weight, _ in partial:
            yield drafts, given, weight

    def _one_token(
        self,
        rows: tuple[int, ...],
        outputs: Sequence[Path],
        drafts: tuple[Path, ...],
        known: tuple[Known, ...],
        going: tuple[bool, ...],
        pick: Pick,
    ) -> Iterator[tuple[tuple[Path, ...], tuple[Known, ...], Fraction]]:
        """The drafts one token longer where a row is going."""
        options = []
        for i, row in enumerate(rows):
            if not going[i]:
                options.append([(drafts[i], known[i], ONE)])
                continue
            law = self.world.draft_law(row, (*outputs[i], *drafts[i]))
            drawn = pick(self.rule.draw(law, len(drafts[i]), known[i]))
            options.append([((*drafts[i], d.token), d.known, weight) for d, weight in drawn])
        for combination in product(*options):
            paths, revealed, weights = zip(*combination, strict=True)
            yield paths, revealed, prod(weights, start=ONE)

    def _going_on(
        self,
        ctx: StepContext,
        state: State,
        rows: tuple[int, ...],
        outputs: Sequence[Path],
        drafts: tuple[Path, ...],
        k: int,
        allowed: list[int],
    ) -> tuple[bool, ...]:
        """Which rows draft on after depth k."""
        may = [len(draft) == k and depth > k for draft, depth in zip(drafts, allowed, strict=True)]
        if not self.world.autoregressive or not any(may):
            return tuple(may)
        signals = self._drafter.signals(rows, outputs, drafts, k)
        goes_on = self.policy.proceed(ctx, k, signals, state).tolist()
        return tuple(a and b for a, b in zip(may, goes_on, strict=True))

    def _verify(
        self, situation: Situation, decided: Decided, pick: Pick
    ) -> Iterator[tuple[Situation, Fraction]]:
        """Situations after the target's pass over one joint draft."""
        places = list(enumerate(decided.rows))
        options = [pick(self._ends_of(row, situation.outputs[row], decided, i)) for i, row in places]
        for combination in product(*options):
            ends = [end for end, _ in combination]
            weight = prod((share for _, share in combination), start=decided.weight)
            outputs, known = list(situation.outputs), list(situation.known)
            for (i, row), end in zip(places, ends, strict=True):
                outputs[row] = (*outputs[row], *decided.drafts[i][: end.accepted], end.next_token)
                known[row] = end.known
            after = Situation(
                outputs=tuple(outputs),
                past=situation.past,
                known=tuple(known),
                state=situation.state,
                step=situation.step + 1,
            )
            yield self._observed(after, decided, ends), weight

    def _ends_of(self, row: int, output: Path, decided: Decided, i: int) -> list[End]:
        drafts = decided.drafts[i][: decided.lengths[i]]
        key = (row, output, drafts, decided.known[i])
        if key not in self._ends:
            target = self.world.requests[row].target
            paths = [(*output, *drafts[:k]) for k in range(len(drafts) + 1)]
            p = [target[path] for path in paths]
            q = [self.world.draft_law(row, path) for path in paths[:-1]]
            self._ends[key] = self.rule.ends(drafts, p, q, decided.known[i])
        return self._ends[key]

    def _observed(self, after: Situation, decided: Decided, ends: list[End]) -> Situation:
        """The situation with the policy's state after the step; the last state is of no use to anybody."""
        if not self._learns or self.is_over(after):
            return after
        verify_lengths = torch.tensor(decided.lengths)
        verdict = Verdict(
            verify_lengths=verify_lengths,
            accepted=torch.tensor([end.accepted for end in ends]),
            next_token=torch.tensor([end.next_token for end in ends]),
            step_time_s=self._step_time_s(decided, verify_lengths),
            draft=decided.record,
            divergence=self._divergence(after, decided),
        )
        return Situation(
            outputs=after.outputs,
            past=after.past,
            known=after.known,
            state=self.policy.observe(decided.ctx, verdict, after.state),
            step=after.step,
        )

    def _step_time_s(self, decided: Decided, verify_lengths: Tensor) -> float:
        ctx = decided.ctx
        longest = max(len(draft) for draft in decided.drafts)
        time = self.world.cost.step_time_s(
            decode_rows=torch.tensor(ctx.num_rows),
            tokens=ctx.num_rows + verify_lengths.sum(),
            context_tokens=ctx.context_lengths.sum(),
            draft_tokens=torch.tensor(longest),
        )
        return float(time.total_s)

    def _divergence(self, after: Situation, decided: Decided) -> Tensor | None:
        """KL(q || p) of the verified positions, as the engine tells it to policies that need it."""
        if decided.record is None or Signal.DIVERGENCE not in self.policy.needs:
            return None
        found = torch.full(decided.record.tokens.shape, torch.nan)
        for i, row in enumerate(decided.rows):
            request = self.world.requests[row]
            emitted = after.outputs[row]
            for k in range(decided.lengths[i]):
                path = (*emitted[: int(decided.ctx.context_lengths[i]) - NUM_PROMPT - after.past[row]],)
                path = (*path, *decided.drafts[i][:k])
                p = torch.tensor([float(x) for x in request.target[path]])
                q = torch.tensor([float(x) for x in self.world.draft_law(row, path)])
                if not self._tells_q:
                    found[i, k] = -p[decided.drafts[i][k]].log()
                else:
                    found[i, k] = (q * (q / p).log()).nan_to_num(0.0).sum()
        return found
