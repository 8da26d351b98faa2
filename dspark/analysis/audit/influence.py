"""What decides whether a position is verified: the class that a policy really has.

A policy is taken through many random steps, of changing batches and with signals as a drafter with
32 tokens gives them. In every step some of what the drafter said about a row from position k on is
said anew, and the policy is asked again whether position k is verified:

* its token and all that follows from it: the answer changes in class D only;
* also what precedes the token, there and in other rows: from class C on;
* everything: from class B on. In class A no answer ever changes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from dspark.analysis.audit.cases import jagged_cost
from dspark.analysis.audit.decide import Facts, Step, decided, with_another_rest, with_another_token
from dspark.drafters.signals import LogitSignals
from dspark.engine.assembly import NO_CAP, check_depths, usable_depth
from dspark.policies.base import Policy
from dspark.types import LosslessClass, Signal, StepContext, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.cost.base import CostModel
    from dspark.policies.base import State

NUM_SLOTS = 6
VOCABULARY = 32
MAX_DEPTH = 8  # deeper positions are left out
STEPS_PER_BATCH = 4
_FROM_LOGITS = (Signal.TOP1_PROBABILITY, Signal.ENTROPY, Signal.MARGIN, Signal.TOKEN_PROBABILITY)


class Reach(IntEnum):
    """The latest thing that a decision about position k was seen to depend on."""

    PAST = 0
    EARLIER_POSITIONS = 1
    BEFORE_THE_TOKEN = 2
    THE_TOKEN = 3

    @property
    def lossless_class(self) -> LosslessClass:
        """The class of a policy that reaches this far and no farther."""
        return (
            LosslessClass.FIXED,
            LosslessClass.STOP_AFTER,
            LosslessClass.PRE_TOKEN,
            LosslessClass.SAMPLED,
        )[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """What was found."""

    reach: Reach
    num_decisions: int  # positions asked about again with another token
    num_flips: int  # answers that this changed


def influence(policy: Policy, *, num_steps: int, seed: int) -> Influence:
    """What the policy's decisions depend on, seen over ``num_steps`` random steps.

    Raises:
        ValueError: the policy answers with what is no depth.
    """
    probe = _Probe(policy, seed)
    for number in range(num_steps):
        probe.step(number)
    return Influence(reach=probe.reach, num_decisions=probe.num_decisions, num_flips=probe.num_flips)


class _Probe:
    """One run of a policy over random steps."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.reach, self.num_decisions, self.num_flips = Reach.PAST, 0, 0
        self._policy = policy
        self._stops = type(policy).proceed is not Policy.proceed
        self._state: State = policy.init(NUM_SLOTS)
        self._rng = random.Random(seed)
        self._torch = torch.Generator().manual_seed(seed)
        self._cost: CostModel = jagged_cost(self._rng, NUM_SLOTS * (MAX_DEPTH + 1))
        self._slots: list[int] = []
        self._wanted = frozenset(policy.needs) - {Signal.DIVERGENCE}

    def step(self, number: int) -> None:
        """Take one step, and ask again about one position."""
        if number % STEPS_PER_BATCH == 0:
            self._slots = self._rng.sample(range(NUM_SLOTS), self._rng.randint(1, NUM_SLOTS))
            self._cost = jagged_cost(self._rng, NUM_SLOTS * (MAX_DEPTH + 1))
        ctx = self._context(number, is_new=number % STEPS_PER_BATCH == 0)
        plan = self._policy.plan(ctx, self._state)
        check_depths("plan", plan, ctx, self._policy.max_depth, self._policy)
        allowed = torch.minimum(plan, usable_depth(ctx, None)).clamp(max=MAX_DEPTH)
        draft, verified = None, torch.zeros_like(allowed)
        if bool(allowed.any()):
            step = Step(
                ctx=ctx,
                state=self._state,
                allowed=allowed,
                autoregressive=self._stops and self._rng.random() < 0.5,
            )
            facts = self._facts(len(self._slots), int(allowed.max()))
            draft, verified = decided(self._policy, step, facts)
            self._ask_again(step, facts, verified)
        accepted = (torch.rand(len(self._slots), generator=self._torch) * (verified + 1)).long()
        divergence = None
        if draft is not None and Signal.DIVERGENCE in self._policy.needs:
            seen = torch.arange(draft.tokens.shape[1]) < verified[:, None]
            divergence = torch.rand(seen.shape, generator=self._torch).where(seen, torch.nan)
        verdict = Verdict(
            verify_lengths=verified,
            accepted=accepted,
            next_token=torch.zeros_like(accepted),
            step_time_s=self._rng.uniform(0.5, 2.0),
            draft=draft,
            divergence=divergence,
        )
        self._state = self._policy.observe(ctx, verdict, self._state)

    def _ask_again(self, step: Step, facts: Facts, verified: Tensor) -> None:
        """Say anew what was said about a random row from a random position on."""
        _, again = decided(self._policy, step, facts)
        if not torch.equal(again, verified):
            raise ValueError(
                f"policy {type(self._policy).__name__} answered {verified.tolist()} and then "
                f"{again.tolist()} to the same question: hooks must be pure to be audited, so let randomness "
                "be a function of ctx.step and a seed"
            )
        row = self._rng.choice(step.allowed.nonzero().squeeze(1).tolist())
        k = self._rng.randrange(int(step.allowed[row]))  # drafts before the position
        fresh = self._facts(*facts.tokens.shape)
        changes = {
            Reach.THE_TOKEN: with_another_token(facts, self._with_token(facts, fresh, row, k), row, k),
            Reach.BEFORE_THE_TOKEN: with_another_rest(facts, fresh, k),
            Reach.EARLIER_POSITIONS: fresh,
        }
        for reach, changed in changes.items():
            _, now = decided(self._policy, step, changed)
            if bool(now[row] > k) is not bool(verified[row] > k):
                self.reach = max(self.reach, reach)
                self.num_flips += reach is Reach.THE_TOKEN
        self.num_decisions += 1

    def _with_token(self, facts: Facts, fresh: Facts, row: int, k: int) -> Facts:
        """Fresh facts whose token at the place could follow ``facts`` up to there, however unlikely."""
        assert facts.q is not None, "the probe's drafter tells q"
        token = int(torch.randint(VOCABULARY, (), generator=self._torch))
        place = torch.zeros_like(fresh.tokens, dtype=torch.bool)
        place[row, k] = True
        signals = dict(fresh.signals)
        if Signal.TOKEN_PROBABILITY in signals:
            likelihood = facts.q[row, k, token]
            signals[Signal.TOKEN_PROBABILITY] = signals[Signal.TOKEN_PROBABILITY].where(~place, likelihood)
        return Facts(tokens=fresh.tokens.where(~place, token), q=fresh.q, signals=signals)

    def _facts(self, num_rows: int, width: int) -> Facts:
        """A random full-depth draft: rows and positions are sure of themselves to very unlike degrees."""
        shape = (num_rows, width, VOCABULARY)
        sharpness = 10 ** torch.empty(num_rows, width, 1).uniform_(-1, 1.2, generator=self._torch)
        logits = torch.randn(shape, generator=self._torch) * sharpness
        q = logits.softmax(-1)
        tokens = torch.multinomial(q.view(-1, VOCABULARY), 1, generator=self._torch).view(num_rows, width)
        signals = LogitSignals(num_rows, width, self._wanted & set(_FROM_LOGITS), logits.device)
        for k in range(width):
            signals.record(torch.arange(num_rows), k + 1, logits[:, k], tokens[:, k])
        found = dict(signals.all())
        if Signal.CONFIDENCE in self._wanted:
            # near 0, near 1 and in between alike
            found[Signal.CONFIDENCE] = torch.sigmoid(3 * torch.randn(num_rows, width, generator=self._torch))
        return Facts(tokens=tokens, q=q, signals=found)

    def _context(self, number: int, *, is_new: bool) -> StepContext:
        slots = torch.tensor(self._slots)
        return StepContext(
            step=number,
            slots=slots,
            is_new=torch.full_like(slots, is_new, dtype=torch.bool),
            context_lengths=100 + 7 * slots + number,
            remaining_tokens=torch.full_like(slots, 50),
            depth_caps=torch.full_like(slots, NO_CAP),
            num_slots=NUM_SLOTS,
            cost=self._cost,
        )
