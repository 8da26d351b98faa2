"""The recorder drafts and verifies all, and its state is the last step's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from dspark.drafters.draft_model import DraftModelDrafter
from dspark.engine.engine import Engine
from dspark.policies.recorder import LastStep, Recorder
from dspark.types import LosslessClass, SamplingParams, Signal
from tests.engine.tools import load, random_prompts

if TYPE_CHECKING:
    from pathlib import Path

SIGNALS = frozenset({Signal.TOP1_PROBABILITY, Signal.ENTROPY})


def test_every_row_has_the_depth_whatever_happened(step_context, random_draft) -> None:
    policy = Recorder(depth=5, signals=SIGNALS)
    assert (policy.max_depth, policy.needs) == (5, SIGNALS)
    assert policy.lossless_class is LosslessClass.FIXED
    ctx = step_context(3)
    assert policy.init(3) is None
    assert policy.plan(ctx, None).tolist() == [5, 5, 5]
    draft = random_draft(torch.tensor([5, 2, 0]), torch.Generator().manual_seed(0))
    assert policy.trim(ctx, draft, None).tolist() == [5, 2, 0]
    assert policy.proceed(ctx, 1, draft.signals, None).tolist() == [True] * 3


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="depth must be >= 0, got -1"):
        Recorder(depth=-1, signals=SIGNALS)


def test_the_state_of_an_engine_is_its_last_step(tiny_llama: Path) -> None:
    target = load(tiny_llama)
    engine = Engine(target, DraftModelDrafter(target), Recorder(depth=3, signals=SIGNALS), max_batch_size=2)
    assert engine.policy_state is None
    params = SamplingParams(max_new_tokens=12, ignore_eos=True, temperature=0.7)
    requests = engine.requests.make(random_prompts(2), params)
    num_seen = 0
    for step in engine.run(requests):
        if not step.rows:
            continue
        last = engine.policy_state
        assert isinstance(last, LastStep)
        assert last.ctx.step == step.step
        assert last.verdict.accepted.tolist() == [row.accepted for row in step.rows]
        assert last.verdict.verify_lengths.tolist() == [row.drafted for row in step.rows]
        if last.verdict.draft is not None:
            assert last.verdict.draft.q is None
            assert set(last.verdict.draft.signals) == SIGNALS
            num_seen += 1
    assert num_seen > 2
