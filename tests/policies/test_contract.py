"""What every policy must keep to. A new policy joins by one line in ``POLICIES``."""

from __future__ import annotations

import copy
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import yaml

from dspark.policies import BatchTable, Confidence, Fixed
from dspark.types import LosslessClass, Signal, Verdict
from tests.policies import catalogue_a, catalogue_b, catalogue_c

if TYPE_CHECKING:
    from dspark.policies import Policy


@dataclass(frozen=True, kw_only=True)
class Case:
    policy: Policy
    lossless_class: LosslessClass
    row_local: bool  # a row's depth does not depend on its neighbours


REPO = Path(__file__).resolve().parents[2]
A, B, C = LosslessClass.FIXED, LosslessClass.STOP_AFTER, LosslessClass.PRE_TOKEN
RANGES = BatchTable(ranges=[[1, 4, 6], [5, 9, 2], [10, 512, 0]], hysteresis=1)
SCHEDULE = BatchTable(draft_len_schedule={2: 4, 8: 2})
SWITCH = BatchTable(disable_by_batch_size=6, depth=3)
SURVIVAL = Confidence(depth=6, signal="confidence", survival=True, threshold=0.2)
BEFORE = Confidence(depth=6, signal="top1_probability", stop="before", threshold=0.7)

POLICIES = {
    "plain": Case(policy=Fixed(depth=0), lossless_class=A, row_local=True),
    "fixed": Case(policy=Fixed(depth=5), lossless_class=A, row_local=True),
    "ranges": Case(policy=RANGES, lossless_class=A, row_local=False),
    "schedule": Case(policy=SCHEDULE, lossless_class=A, row_local=False),
    "switch": Case(policy=SWITCH, lossless_class=A, row_local=False),
    "confidence": Case(policy=Confidence(depth=6), lossless_class=B, row_local=True),
    "survival": Case(policy=SURVIVAL, lossless_class=B, row_local=True),
    "confidence_before": Case(policy=BEFORE, lossless_class=C, row_local=True),
}
for catalogue in (catalogue_a, catalogue_b, catalogue_c):
    for name, (policy, lossless_class, row_local) in catalogue.POLICIES.items():
        POLICIES[name] = Case(policy=policy, lossless_class=lossless_class, row_local=row_local)
BATCH_SIZES = (1, 4, 5, 12, 11, 9, 3, 1, 0, 2, 6)  # crosses the tables' edges both ways, and empties

case = pytest.mark.parametrize("case", POLICIES.values(), ids=POLICIES.keys())


def same(a, b) -> bool:
    """Deep equality of states and arguments; NaN equals NaN."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def pure(hook, *args):
    """The hook's answer, after checking that it repeats itself and leaves its arguments alone."""
    before = copy.deepcopy(args)
    answer = hook(*args)
    assert same(args, before), "an argument was changed"
    assert same(hook(*args), answer), "the same arguments gave another answer"
    return answer


@dataclass
class Steps:
    """An engine's view of one policy over a run of batches; checks the bounds of every answer."""

    policy: Policy
    step_context: object
    random_draft: object
    seed: int = 0

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        state = self.policy.init(16)
        for step, num_rows in enumerate(BATCH_SIZES):
            slots = torch.randperm(16, generator=generator)[:num_rows]
            ctx = self.step_context(num_rows, num_slots=16, step=step, slots=slots)
            plan = pure(self.policy.plan, ctx, state)
            assert plan.dtype == torch.int64
            assert plan.shape == (num_rows,)
            assert bool(((plan >= 0) & (plan <= self.policy.max_depth)).all())
            # budgets cut some rows, every third step all of them to 0: plans are jagged
            caps = torch.randint(0, 8, (num_rows,), generator=generator) * (step % 3 > 0)
            width = int(torch.minimum(plan, caps).max()) if num_rows else 0
            draft = self.random_draft(torch.minimum(plan, caps), generator, width)
            for k in range(1, width + 1):
                signals = {name: values[:, :k] for name, values in draft.signals.items()}
                goes_on = pure(self.policy.proceed, ctx, k, signals, state)
                assert goes_on.dtype == torch.bool
                assert goes_on.shape == (num_rows,)
            verify = pure(self.policy.trim, ctx, draft, state)
            assert verify.dtype == torch.int64
            assert bool(((verify >= 0) & (verify <= draft.lengths)).all())
            yield ctx, draft, state
            accepted = (torch.rand(num_rows, generator=generator) * (verify + 1)).long()
            verdict = Verdict(
                verify_lengths=verify,
                accepted=accepted,
                next_token=accepted,
                step_time_s=0.01 * (1 + step % 3),
                draft=draft if width else None,
                divergence=draft.signals[Signal.DIVERGENCE] if width else None,
            )
            state = pure(self.policy.observe, ctx, verdict, state)


@case
def test_bounds_and_purity_while_the_batch_changes_every_step(case, step_context, random_draft):
    assert len(list(Steps(case.policy, step_context, random_draft))) == len(BATCH_SIZES)


@case
def test_a_policy_is_frozen(case):
    with pytest.raises(FrozenInstanceError):
        setattr(case.policy, fields(case.policy)[0].name, 3)


@case
def test_lossless_class_is_as_listed(case):
    assert case.policy.lossless_class is case.lossless_class


@case
def test_needs_are_the_signals_that_are_read(case, step_context, random_draft):
    for ctx, draft, state in Steps(case.policy, step_context, random_draft):
        needed = {name: values for name, values in draft.signals.items() if name in case.policy.needs}
        bare = type(draft)(tokens=draft.tokens, lengths=draft.lengths, q=None, signals=needed)
        assert same(case.policy.trim(ctx, bare, state), case.policy.trim(ctx, draft, state))


def taken(record, rows):
    """The record with these rows of every tensor."""
    changes = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, torch.Tensor):
            changes[field.name] = value[rows]
        elif isinstance(value, dict):
            changes[field.name] = {name: entry[rows] for name, entry in value.items()}
        else:
            changes[field.name] = value
    return type(record)(**changes)


def hooks(policy, ctx, draft, state):
    """Every answer of a step, by hook."""
    answers = {"plan": policy.plan(ctx, state), "trim": policy.trim(ctx, draft, state)}
    for k in range(1, draft.tokens.shape[1] + 1):
        signals = {name: values[:, :k] for name, values in draft.signals.items()}
        answers[f"proceed {k}"] = policy.proceed(ctx, k, signals, state)
    return answers


@case
def test_permuted_rows_get_permuted_answers(case, step_context, random_draft):
    for ctx, draft, state in Steps(case.policy, step_context, random_draft):
        order = torch.arange(ctx.num_rows).flip(0)
        permuted = hooks(case.policy, taken(ctx, order), taken(draft, order), state)
        for name, answer in hooks(case.policy, ctx, draft, state).items():
            if case.row_local:
                assert torch.equal(permuted[name], answer[order]), name
            else:  # rows that tie for a shared budget are served by their place
                assert permuted[name].sum() == answer.sum(), name


@pytest.mark.parametrize("name", [name for name, case in POLICIES.items() if case.row_local])
def test_a_row_is_decided_without_its_neighbours(name, step_context, random_draft):
    policy = POLICIES[name].policy
    for ctx, draft, state in Steps(policy, step_context, random_draft):
        together = hooks(policy, ctx, draft, state)
        for row in range(ctx.num_rows):
            only = torch.tensor([row])
            alone = hooks(policy, taken(ctx, only), taken(draft, only), state)
            for hook, answer in together.items():
                assert torch.equal(alone[hook], answer[only]), (hook, row)


@case
def test_position_k_is_verified_or_not_without_knowing_token_k(case, step_context, random_draft, anticipates):
    """And the rules that are declared to know it (class D) are caught by the same check."""
    generator = torch.Generator().manual_seed(1)
    biased = case.lossless_class is LosslessClass.SAMPLED
    width, found = min(7, case.policy.max_depth), False
    for num_rows in (1, 2, 3, 6):
        ctx, state = step_context(num_rows), case.policy.init(num_rows)
        # a choice among few buckets seldom hangs on one token, so the biased are given more chances
        drafts = (
            random_draft(torch.full((num_rows,), width), generator) for _ in range(200 if biased else 20)
        )
        found = found or any(anticipates(case.policy, ctx, draft, state, generator) for draft in drafts)
    assert found == biased


def test_every_policy_of_the_configuration_is_under_contract():
    """A YAML file that names a class which no case runs would slip through."""
    listed = {
        f"{type(case.policy).__module__}.{type(case.policy).__qualname__}" for case in POLICIES.values()
    }
    for path in sorted((REPO / "configs" / "policy").glob("*.yaml")):
        target = yaml.safe_load(path.read_text())["_target_"]
        assert target in listed or target == "dspark.policies.confidence.Confidence", path.name


def test_the_check_for_anticipation_finds_a_rule_that_does(step_context, random_draft, anticipates):
    biased = Confidence(depth=7, signal="token_probability", stop="before")
    generator = torch.Generator().manual_seed(1)
    draft = random_draft(torch.full((64,), 7), generator)
    assert biased.lossless_class is LosslessClass.SAMPLED
    assert anticipates(biased, step_context(64), draft, None, generator)


@pytest.mark.parametrize("depth", [-1, 2.5, True])
@pytest.mark.parametrize("policy", [Fixed, Confidence])
def test_a_depth_that_is_none_is_refused(policy, depth):
    with pytest.raises(ValueError, match="depth must be"):
        policy(depth=depth)


def test_negative_depth_message():
    with pytest.raises(ValueError, match=r"^depth must be >= 0, got -1$"):
        Fixed(depth=-1)
