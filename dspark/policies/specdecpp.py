"""Stop when it has become likely that a token of the draft will be rejected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.estimators import Estimator, build_estimator, survival
from dspark.policies.stopping import num_leading, stop_after
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.types import Draft, Signal, StepContext, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Specdecpp(Policy):
    """Draft on while ``1 − Π_{j<=k} ĉ_j <= threshold``; the token that crosses it is verified.

    SpecDec++ (Huang et al., arXiv 2405.19715; defaults of https://github.com/Kaffaljidhmah2/SpecDec_pp)
    shows that a threshold on the probability of a rejection is optimal, and estimates it with a head
    trained on the draft model. Here any estimator does; ``top1`` needs no training. The head reads the
    hidden state of a token's own position, which exists one draft pass later: with ``lag`` the decision
    after token k counts the tokens before k only, as in the authors' code.

    Class B with every estimator: the token just drawn is verified. While the estimator is warming up,
    drafts go to ``depth``.

    Args:
        depth: draft at most this far.
        min_depth: and at least this far, whatever the estimate.
        threshold: h, in [0, 1]; 1 never stops.
        lag: leave the last token out of the product.
        estimator: of the conditional acceptance, by name.
        estimator_settings: the estimator's own fields; None for its defaults.
        temperatures: T_1...T_depth of a calibration, or the file of one.

    Raises:
        ValueError: a field is outside its range, or the estimator's are.
    """

    depth: int = 20
    min_depth: int = 2
    threshold: float = 0.3
    lag: bool = False
    estimator: str = "top1"
    estimator_settings: dict[str, Any] | None = None
    temperatures: list[float] | str | None = None
    built: Estimator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_depth(self.depth)
        require_depth(self.min_depth, "min_depth")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be in [0, 1], got {self.threshold}")
        settings = self.estimator_settings or {}
        built = build_estimator(self.estimator, temperatures=self.temperatures, **settings)
        built.init(0, self.depth)  # refuses a calibration that is too short, before anything runs
        object.__setattr__(self, "built", built)

    @property
    def lossless_class(self) -> LosslessClass:
        """B."""
        return LosslessClass.STOP_AFTER

    @property
    def max_depth(self) -> int:
        """``depth``, reached while a rejection is unlikely."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The estimator's."""
        return self.built.needs

    def init(self, num_slots: int) -> State:
        """The estimator's state."""
        return self.built.init(num_slots, self.depth)

    def plan(self, ctx: StepContext, state: State) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def proceed(self, ctx: StepContext, k: int, signals: Mapping[Signal, Tensor], state: State) -> Tensor:
        """Bool [B]: a rejection among the first k is not yet likely."""
        return num_leading(self._sure(ctx, signals, k, state)) == k

    def trim(self, ctx: StepContext, draft: Draft, state: State) -> Tensor:
        """Int [B]: the draft up to the token at which a rejection becomes likely, with it."""
        return stop_after(self._sure(ctx, draft.signals, draft.tokens.shape[1], state), draft.lengths)

    def observe(self, ctx: StepContext, verdict: Verdict, state: State) -> State:
        """The estimator's state after the step."""
        return self.built.observe(ctx, verdict, state)

    def _sure(self, ctx: StepContext, signals: Mapping[Signal, Tensor], width: int, state: State) -> Tensor:
        """Bool [B, width]: draft on after this position."""
        k = torch.arange(1, width + 1, device=ctx.slots.device)
        if self.built.warming_up(state):
            return (k > 0).expand(ctx.num_rows, -1)
        conditional = self.built.conditional(ctx, signals, width, state)
        if self.lag:
            conditional = torch.cat([torch.ones_like(conditional[:, :1]), conditional[:, :-1]], dim=1)
        return (1 - survival(conditional) <= self.threshold) | (k < self.min_depth)
