"""Copies of a request: one replay with sizes multiplied is the replay of them all."""

from __future__ import annotations

import numpy as np
import pytest

from dspark.analysis.replay.hindsight import Hindsight
from dspark.analysis.replay.run import replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.published import published_cost
from dspark.policies.fixed import Fixed
from experiments.e10_performance_or_illusion.speeds import WHOLE_PROMPTS, tokens_per_s


@pytest.fixture(scope="module")
def trace() -> AcceptanceTrace:
    generator = np.random.default_rng(0)
    count = 39
    return AcceptanceTrace(
        depth=6,
        request_ids=("one",),
        prompt_tokens=np.array([700]),
        output_tokens=np.array([count + 1]),
        max_tokens=np.array([800]),
        drafted=np.full(count, 6),
        accepted=generator.integers(0, 7, size=count),
    )


@pytest.mark.parametrize("drafter", ["eagle", "ngram"])
@pytest.mark.parametrize("batch_size", [1, 2, 9])
@pytest.mark.parametrize("policy", [Fixed(depth=0), Fixed(depth=3), Hindsight(depth=6, always_drafts=True)])
def test_one_replay_stands_for_its_copies(
    trace: AcceptanceTrace, policy: Fixed | Hindsight, batch_size: int, drafter: str
) -> None:
    cost = published_cost(f"illusion-llama3.1-8b-h100-{drafter}")
    alone = replay(trace, policy, batch_size=1, cost=cost, prefill_chunk=WHOLE_PROMPTS)
    copies = replay(
        trace.of([0] * batch_size), policy, batch_size=batch_size, cost=cost, prefill_chunk=WHOLE_PROMPTS
    )
    assert tokens_per_s(alone, cost, batch_size) == pytest.approx(copies.tokens_per_s(), rel=1e-12)
