"""Draft to full depth, then verify the positions of the whole batch that are most likely accepted.

What the schedulers of this family differ in is the budget: how many drafted tokens the pass takes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dspark.policies.base import Policy, State, require_depth
from dspark.policies.estimators import Estimator, build_estimator, survival
from dspark.policies.search import Ranking, rank
from dspark.types import Knowledge, LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import Draft, Signal, StepContext, Verdict

PROBE_EVERY = 100
"""Steps between two whole verifications, for estimators that learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """The estimator's state, and each slot's survivals in its last steps."""

    estimator: State
    history: Tensor  # float64 [steps back, num_slots, depth], newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBudget(Policy):
    """Abstract: every row drafts ``depth`` tokens, and ``budget`` says how many of all are verified.

    The rows' positions compete by survival, the product of the estimator's conditional acceptances;
    ties go to the earlier position, then to the earlier row.

    Verification can be cut to nothing for as long as it does not pay. Estimators that only read
    signals judge every draft anew. One that learns would not see the positions it has cut, so whole
    drafts are verified while it warms up and every ``probe_every`` steps; neither looks at the draft.

    Args:
        depth: tokens drafted for every row.
        estimator: of conditional acceptance, by name (``dspark.policies.estimators``).
        estimator_settings: the estimator's own fields; None for its defaults.
        temperatures: T_1...T_depth of a calibration, or the file of one.
        probe_every: steps between two whole verifications, 0 for none; null is 100 with an estimator
            that learns, and 0 with one that does not.

    Raises:
        ValueError: a field is outside its range, or the estimator refuses its settings.
    """

    needs_cost: ClassVar[bool] = True

    depth: int
    estimator: str = "confidence"
    estimator_settings: dict[str, Any] | None = None
    temperatures: list[float] | str | None = None
    probe_every: int | None = None
    built: Estimator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_depth(self.depth)
        if self.probe_every is not None and self.probe_every < 0:
            raise ValueError(f"probe_every must be >= 0 steps, or null, got {self.probe_every}")
        settings = self.estimator_settings or {}
        built = build_estimator(self.estimator, temperatures=self.temperatures, **settings)
        built.init(0, self.depth)  # refuses a calibration that is too short, before anything runs
        object.__setattr__(self, "built", built)
        self.check()

    def check(self) -> None:
        """Nothing, if the fields that a subclass adds are in range.

        Raises:
            ValueError: one is not.
        """

    @property
    @abstractmethod
    def steps_back(self) -> int:
        """How many of a slot's past steps are remembered; ``recalled`` gives the oldest."""

    @abstractmethod
    def budget(self, ctx: StepContext, draft: Draft, live: Ranking, state: BudgetState) -> Tensor:
        """Int without dimension: how many drafted tokens to verify; ``live`` ranks this step's."""

    def class_by_knowledge(self, *, retrospective: bool) -> LosslessClass:
        """A, C or D by what the estimator looks at.

        Args:
            retrospective: the budget looks at survivals of this step behind the positions it cuts.
        """
        knowledge = self.built.knowledge
        if knowledge is Knowledge.PAST:
            return LosslessClass.FIXED
        if knowledge is Knowledge.SAMPLED_TOKEN or retrospective:
            return LosslessClass.SAMPLED
        return LosslessClass.PRE_TOKEN

    @property
    def max_depth(self) -> int:
        """``depth``."""
        return self.depth

    @property
    def needs(self) -> frozenset[Signal]:
        """The estimator's."""
        return self.built.needs

    def init(self, num_slots: int) -> BudgetState:
        """The estimator's first state, and survival 1 everywhere."""
        return BudgetState(
            estimator=self.built.init(num_slots, self.depth),
            history=torch.ones(self.steps_back, num_slots, self.depth, dtype=torch.float64),
        )

    def plan(self, ctx: StepContext, state: BudgetState) -> Tensor:
        """Int [B], ``depth`` everywhere."""
        return torch.full_like(ctx.slots, self.depth)

    def trim(self, ctx: StepContext, draft: Draft, state: BudgetState) -> Tensor:
        """Int [B]: each row's share of the budget."""
        width = draft.tokens.shape[1]
        if draft.lengths.numel() == 0 or width == 0:
            return draft.lengths
        if self._probes(ctx, state) or self.built.warming_up(state.estimator):
            return draft.lengths
        conditional = self.built.conditional(ctx, draft.signals, width, state.estimator)
        live = rank(survival(conditional), draft.lengths)
        return live.lengths(self.budget(ctx, draft, live, state))

    def observe(self, ctx: StepContext, verdict: Verdict, state: BudgetState) -> BudgetState:
        """What the estimator learnt, and the survivals of this step's draft."""
        history = state.history
        if self.steps_back:
            history = self._remembered(ctx, self._survival(ctx, verdict.draft, state), history)
        return BudgetState(estimator=self.built.observe(ctx, verdict, state.estimator), history=history)

    def recalled(self, ctx: StepContext, state: BudgetState) -> Tensor:
        """Float64 [B, depth]: survivals ``steps_back`` of the row's steps ago; 1 before its first."""
        oldest = state.history[-1].to(ctx.slots.device)[ctx.slots]
        return torch.where(ctx.is_new[:, None], 1.0, oldest)

    def _probes(self, ctx: StepContext, state: BudgetState) -> bool:
        every = self.probe_every
        if every is None:
            every = 0 if state.estimator is None else PROBE_EVERY
        return every > 0 and (ctx.step + 1) % every == 0

    def _survival(self, ctx: StepContext, draft: Draft | None, state: BudgetState) -> Tensor:
        """Float64 [B, depth] of a draft; a position that was not drafted counts as conditional 1."""
        conditional = torch.ones(ctx.num_rows, self.depth, dtype=torch.float64, device=ctx.slots.device)
        if draft is not None and draft.tokens.shape[1] > 0:
            width = draft.tokens.shape[1]
            known = torch.arange(1, width + 1, device=conditional.device) <= draft.lengths[:, None]
            found = self.built.conditional(ctx, draft.signals, width, state.estimator)
            conditional[:, :width] = torch.where(known, found, 1.0)
        return survival(conditional)

    def _remembered(self, ctx: StepContext, newest: Tensor, history: Tensor) -> Tensor:
        """The history with ``newest`` [B, depth] in front; rows not in the step keep theirs."""
        history = history.to(ctx.slots.device)
        older = torch.where(ctx.is_new[:, None], 1.0, history[:-1, ctx.slots])
        return history.index_copy(1, ctx.slots, torch.cat([newest[None], older]))
