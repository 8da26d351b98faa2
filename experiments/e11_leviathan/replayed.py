"""The paper's model as a trace: every draft token accepted with probability α, whatever came before."""

from __future__ import annotations

import numpy as np

from dspark.analysis.replay.run import replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.cost.constant import ConstantCost
from dspark.policies.fixed import Fixed


def replayed_speedup(alpha: float, gamma: int, num_tokens: int, seed: int) -> tuple[float, float]:
    """Tokens over plain passes that take as long, and the standard error of it.

    Drafts cost nothing, so this is tokens a step of a replay, one request of ``num_tokens``.
    """
    generator = np.random.default_rng([seed, gamma, round(alpha * 1000)])
    right = generator.random((num_tokens - 1, gamma)) < alpha
    trace = AcceptanceTrace(
        depth=gamma,
        request_ids=("one",),
        prompt_tokens=np.array([1]),
        output_tokens=np.array([num_tokens]),
        max_tokens=np.array([num_tokens + gamma + 2]),
        drafted=np.full(num_tokens - 1, gamma),
        accepted=right.cumprod(1).sum(1),
    )
    cost = ConstantCost(draft_s_per_token=0.0, target_s=1.0)
    done = replay(trace, Fixed(depth=gamma), batch_size=1, cost=cost)
    emitted = done.rows["emitted"]
    return done.tokens_per_s(), float(emitted.std(ddof=1) / np.sqrt(len(emitted)))
