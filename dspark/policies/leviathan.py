"""The closed-form best depth, from acceptance and relative draft cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.leviathan_law import best_depth
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What has been observed, in positions that the target judged; old ones fade."""

    accepted: float = 0.0
    judged: float = 0.0
    idle_steps: int = 0  # since a draft was last verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Leviathan(Policy):
    """γ* = arg max of Theorem 3.8 (Leviathan et al., arXiv 2211.17192) for every row of a step.

    Class A: acceptance α is a constant or comes from earlier steps. With ``alpha`` the depth never
    changes, and is 0 if α <= c: such a drafter does not pay. Without, α is the share of judged
    positions that were accepted, over all rows, which is its maximum-likelihood estimate under the
    paper's assumption of equal and independent positions. Position k counts as judged where it was
    reached: k <= accepted + 1.

    Way back from 0: after ``probe_every`` steps without a verified draft, one step drafts 1 token.

    The paper gives α and c as measured constants; the estimate, its memory and the probe are ours.

    Args:
        depth: the largest depth.
        cost_ratio: c, seconds of a draft token over seconds of a target pass.
        alpha: acceptance in [0, 1], or None to estimate it.
        prior_alpha: the estimate before anything was judged.
        prior_positions: how many judged positions that is worth.
        memory_positions: judged positions remembered; the estimate follows changes about that fast.
        probe_every: steps.

    Raises:
        ValueError: a field is outside its range.
    """

    depth: int = 8
    cost_ratio: float = 0.05
    alpha: float | None = None
    prior_alpha: float = 0.7
    prior_positions: float = 16.0
    memory_positions: float = 2000.0
    probe_every: int = 32

    def __post_init__(self) -> None:
        require_depth(self.depth)
        checks = (
            (0 <= self.cost_ratio < float("inf"), "cost_ratio", ">= 0 target passes a draft token"),
            (self.alpha is None or 0 <= self.alpha <= 1, "alpha", "in [0, 1], or null to estimate it"),
            (0 <= self.prior_alpha <= 1, "prior_alpha", "in [0, 1]"),
            (self.prior_positions > 0, "prior_positions", "> 0"),
            (self.memory_positions >= 1, "memory_positions", ">= 1"),
            (self.probe_every >= 1, "probe_every", ">= 1 step"),
        )
        for holds, name, rule in checks:
            if not holds:
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")

    @property
    def lossless_class(self) -> LosslessClass:
        """A."""
        return LosslessClass.FIXED

    @property
    def max_depth(self) -> int:
        """γ* of a constant α, else ``depth``."""
        return self.depth if self.alpha is None else self._best(self.alpha)

    def init(self, num_slots: int) -> State:
        """Nothing judged."""
        return Acceptance()

    def estimate(self, state: State) -> float:
        """α in use: the constant, or the posterior mean of what was observed."""
        if self.alpha is not None:
            return self.alpha
        successes = self.prior_alpha * self.prior_positions + state.accepted
        return successes / (self.prior_positions + state.judged)

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], γ* everywhere."""
        depth = self._best(self.estimate(state))
        if depth == 0 and self._probes(state):
            depth = 1
        return torch.full_like(ctx.slots, depth)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """What has been observed after the step."""
        if self.alpha is not None:
            return state
        reached = torch.minimum(verdict.accepted + 1, verdict.verify_lengths)
        # two sums of a step that is over: the engine has waited for the same tensors to commit it
        accepted, judged = torch.stack([verdict.accepted.sum(), reached.sum()]).tolist()
        kept = min(1.0, self.memory_positions / max(1.0, state.judged + judged))
        return Acceptance(
            accepted=(state.accepted + accepted) * kept,
            judged=(state.judged + judged) * kept,
            idle_steps=0 if judged else state.idle_steps + 1,
        )

    def _best(self, alpha: float) -> int:
        return int(best_depth(alpha, self.cost_ratio, self.depth))

    def _probes(self, state: State) -> bool:
        """Every ``probe_every`` idle steps, until a probe is verified."""
        if self.alpha is not None or self.depth == 0:
            return False
        return state.idle_steps >= self.probe_every
