"""What every estimator keeps to; a new one joins by being in the registry."""

from __future__ import annotations

import copy
from dataclasses import fields, is_dataclass, replace

import pytest
import torch

from dspark.policies.estimators import ESTIMATORS, build_estimator
from dspark.types import Knowledge, Verdict

NUM_SLOTS, DEPTH = 12, 5
SETTINGS = {"margin_logistic": {"refit_every": 3, "min_observations": 4, "capacity": 16}}
BATCH_SIZES = (4, 12, 1, 0, 7, 12, 3, 12, 5)

each = pytest.mark.parametrize("temperatures", [None, [2.0, 0.5, 1.0, 1.5, 3.0]], ids=["raw", "calibrated"])
name = pytest.mark.parametrize("name", ESTIMATORS)


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        assert isinstance(b, torch.Tensor)
        return a.dtype == b.dtype and torch.equal(a.nan_to_num(nan=-1), b.nan_to_num(nan=-1))
    if is_dataclass(a):
        return all(same(getattr(a, item.name), getattr(b, item.name)) for item in fields(a))
    return a == b


def steps(estimator, step_context, random_draft):
    """Contexts, drafts, states and verdicts of a run in which the batch changes every step."""
    generator = torch.Generator().manual_seed(3)
    state = estimator.init(NUM_SLOTS, DEPTH)
    for step, num_rows in enumerate(BATCH_SIZES):
        slots = torch.randperm(NUM_SLOTS, generator=generator)[:num_rows]
        ctx = step_context(num_rows, num_slots=NUM_SLOTS, step=step, slots=slots)
        is_new = torch.rand(num_rows, generator=generator) < 0.2
        ctx = replace(ctx, is_new=is_new)
        lengths = torch.randint(0, DEPTH + 1, (num_rows,), generator=generator)
        draft = random_draft(lengths, generator, DEPTH)
        verify = (torch.rand(num_rows, generator=generator) * (lengths + 1)).long()
        accepted = (torch.rand(num_rows, generator=generator) * (verify + 1)).long()
        verdict = Verdict(verify_lengths=verify, accepted=accepted, next_token=accepted, draft=draft)
        yield ctx, draft, state, verdict
        state = estimator.observe(ctx, verdict, state)


@name
@each
def test_answers_are_probabilities_and_hooks_are_pure(name, temperatures, step_context, random_draft):
    estimator = build_estimator(name, temperatures=temperatures, **SETTINGS.get(name, {}))
    for ctx, draft, state, verdict in steps(estimator, step_context, random_draft):
        before = copy.deepcopy(state)
        for width in (0, 2, DEPTH):
            answer = estimator.conditional(ctx, draft.signals, width, state)
            assert answer.dtype == torch.float64
            assert answer.shape == (ctx.num_rows, width)
            assert bool(((answer >= 0) & (answer <= 1)).all())
            assert torch.equal(answer, estimator.conditional(ctx, draft.signals, width, state))
            # logit and sigmoid round differently at the end of a vector register: up to an ulp or two
            wider = estimator.conditional(ctx, draft.signals, DEPTH, state)[:, :width]
            torch.testing.assert_close(answer, wider, rtol=1e-14, atol=1e-14)
        assert same(estimator.observe(ctx, verdict, state), estimator.observe(ctx, verdict, state))
        assert same(state, before)


@name
def test_a_row_is_estimated_without_its_neighbours(name, step_context, random_draft):
    estimator = build_estimator(name, **SETTINGS.get(name, {}))
    for ctx, draft, state, _ in steps(estimator, step_context, random_draft):
        together = estimator.conditional(ctx, draft.signals, DEPTH, state)
        for row in range(ctx.num_rows):
            only = replace(ctx, slots=ctx.slots[[row]], is_new=ctx.is_new[[row]])
            signals = {signal: values[[row]] for signal, values in draft.signals.items()}
            alone = estimator.conditional(only, signals, DEPTH, state)
            torch.testing.assert_close(alone, together[[row]], rtol=1e-14, atol=1e-14)


@name
def test_past_knowledge_answers_before_drafting_and_other_is_zero_where_nothing_was_drafted(
    name, step_context, random_draft
):
    estimator = build_estimator(name, **SETTINGS.get(name, {}))
    for ctx, draft, state, _ in steps(estimator, step_context, random_draft):
        answer = estimator.conditional(ctx, draft.signals, DEPTH, state)
        if estimator.knowledge is Knowledge.PAST:
            assert torch.equal(answer, estimator.conditional(ctx, None, DEPTH, state))
        else:
            assert bool((answer[torch.arange(DEPTH) >= draft.lengths[:, None]] == 0).all())


@name
def test_a_step_that_drafts_nothing_teaches_nothing(name, step_context, random_draft):
    estimator = build_estimator(name, **SETTINGS.get(name, {}))
    for ctx, _, state, _ in steps(estimator, step_context, random_draft):
        if bool(ctx.is_new.any()):
            continue
        nothing = torch.zeros(ctx.num_rows, dtype=torch.long)
        idle = Verdict(verify_lengths=nothing, accepted=nothing, next_token=nothing)
        assert same(estimator.observe(ctx, idle, state), state)


@name
def test_settings_are_plain_numbers_with_defaults(name):
    kind, fixed = ESTIMATORS[name]
    for item in fields(kind):
        assert item.name in fixed or type(item.default) in (int, float), item.name
