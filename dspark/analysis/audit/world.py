"""A toy world: requests of toy models, and what a step costs.

Small enough that every draft and every outcome of several steps can be enumerated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.analysis.audit.tables import Joint, arg_max, point, target_joint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from dspark.analysis.audit.rules import ExactRule
    from dspark.analysis.audit.tables import Law, Path, Table
    from dspark.cost.base import CostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyRequest:
    """One request: its target, its drafter, and its drafter's confidence, all by output path."""

    target: Table
    drafter: Table
    confidence: Mapping[Path, Fraction]  # c of the token after the path; known before it is drawn

    @property
    def vocab_size(self) -> int:
        """V."""
        return len(self.target[()])


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a policy is let loose on.

    Args:
        name: for reports.
        requests: the rows of the batch, each with a slot and tables of its own.
        horizon: tokens that every request emits.
        cost: seconds of a step.
        autoregressive: the drafter asks ``proceed`` after every token; otherwise whole blocks come.
        deterministic: the drafter proposes its likeliest tokens, which are no samples (class E).
        warm_up_steps: steps that the policy has seen when the enumeration starts.
        seed: of that history.
        shown: the token, from 1, whose law is shown in reports.
    """

    name: str
    requests: tuple[ToyRequest, ...]
    horizon: int
    cost: CostModel
    autoregressive: bool = False
    deterministic: bool = False
    warm_up_steps: int = 0
    seed: int = 0
    shown: int = 1

    def draft_law(self, row: int, path: Path) -> Law:
        """What the drafter's next token of a row follows."""
        law = self.requests[row].drafter[path]
        return point(arg_max(law), len(law)) if self.deterministic else law

    def target_joint(self, rule: ExactRule, row: int) -> Joint:
        """What the output of a row must follow under a rule."""
        target = {path: rule.target_law(law) for path, law in self.requests[row].target.items()}
        return target_joint(target, self.horizon)
