"""Coupled verification: the output of a request does not depend on who drafts, or how far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import pad

from dspark.sampling import distribution
from dspark.types import NO_TOKEN
from dspark.verification.base import Verification
from dspark.verification.decision import Decision, decide
from dspark.verification.draws import Streams, draw_coupled
from dspark.verification.samplers import RowSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from dspark.drafters.base import DraftSampler
    from dspark.types import Draft, Verdict
    from dspark.verification.base import SampledRow
    from dspark.verification.step import Step


@dataclass(frozen=True, slots=True)
class Coupled(Verification):
    """Keep drafts that equal the target's own choice (Daliri, Musco and Suresh, arXiv 2408.07978).

    The target's choice at a position is arg max p/E with exponential noise E that belongs to
    (request seed, position). A drafter that races its q against the same E agrees with probability
    at least (1 - TV)/(1 + TV), TV the total variation distance of p and q.
    """

    name: ClassVar[str] = "coupled"
    lossless: ClassVar[bool] = True
    unbiased_for_class_d: ClassVar[bool] = True

    def draft_sampler(self, rows: Sequence[SampledRow]) -> DraftSampler:
        """Draws by the positions' own noise; verification compares tokens, so no q is kept."""
        return RowSampler(rows=rows, draw_token=draw_coupled, needs_q=False)

    def verify(
        self, rows: Sequence[SampledRow], draft: Draft | None, verify_lengths: Tensor, logits: Tensor
    ) -> Verdict:
        """Drafts up to the first that is not the target's choice, and that choice."""
        return decide(rows, draft, verify_lengths, logits, sampled=_match_races)


def _match_races(step: Step) -> Decision:
    """The target's choices, depth by depth: a row that has parted from its draft needs no more noise."""
    streams = Streams.of(step.rows, step.logits.device)
    accepted = torch.zeros_like(step.lengths)
    next_token = torch.empty_like(step.lengths)
    drafts = pad(step.tokens, (0, 1), value=NO_TOKEN)
    rows = torch.arange(len(step.rows), device=step.logits.device)
    while rows.numel():
        depths = accepted[rows]
        logits, positions = step.at_depth(rows, depths)
        here = Streams(seeds=streams.seeds[rows], committed=streams.committed[rows])
        choice = draw_coupled(distribution(logits, positions), here, depths)
        next_token[rows] = choice
        rows = rows[(depths < step.lengths[rows]) & (drafts[rows, depths] == choice)]
        accepted[rows] += 1
    return Decision(accepted, next_token)
