"""SmartSpec: the depth of the batch that maximises goodput under one acceptance rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from dspark.policies.base import Policy, require_depth
from dspark.policies.estimators import observed
from dspark.policies.search import arg_max, cached_tokens, early_stop
from dspark.policies.search.curve import cost_of
from dspark.types import LosslessClass

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.types import StepContext, Verdict

SCANS = ("early", "arg_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartspecState:
    """What was learnt, and the depth in force."""

    alpha: Tensor  # float64 without dimension: probability that a token is accepted
    match_ratio: Tensor  # float64 without dimension: share of the rows that get a draft
    depth: int
    num_steps: int  # with decode rows
    num_idle: int  # steps in a row without a draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Smartspec(Policy):
    """One depth k for all rows, by ``goodput(k) = expected tokens / predicted seconds``.

    SmartSpec, later TurboSpec (arXiv 2406.14066): of B rows the share ``match_ratio`` gets a draft and
    emits ``1 + α + ... + α^k`` tokens, the others emit one. Class A: α, the share, the batch and the
    times are known before drafting.

    The defaults are those of the authors' ``dsd.py`` (https://github.com/LiuXiaoxuanPKU/vllm, branch
    dsd): a new depth every 20 steps; a scan from k = 0 that ends at the first k which is no gain, with
    plain decoding favoured by 10 %. A fixed cost of speculation makes goodput dip at k = 1, and then
    this scan stays at 0 although a larger k is better; ``scan=arg_max`` does not. Their
    ``auto_tuner.py`` (branch batch-dsd) has ``first_depth=1, plain_margin=1, double_count=true`` and
    200 steps: it adds each row's input token to a number of tokens that holds it already.

    α is observed as accepted over decided tokens, those up to a row's first rejection; it and the share
    are moving averages, changed by steps that drafted.

    Way back from depth 0: after ``probe_every`` steps without a draft, one step drafts one token a row.

    Args:
        depth: the largest k.
        alpha: its value before anything was verified.
        match_ratio: the same of the share of rows with a draft; 1 for draft models.
        decay: weight of the past in both moving averages.
        interval: steps between two decisions.
        scan: "early" or "arg_max".
        first_depth: where the scan begins; 1 leaves plain decoding out.
        plain_margin: factor on the goodput of k = 0.
        double_count: count each row's input token twice.
        probe_every: steps at depth 0 before a probe.

    Raises:
        ValueError: a field is outside its range.
    """

    needs_cost: ClassVar[bool] = True

    depth: int
    alpha: float = 0.7
    match_ratio: float = 1.0
    decay: float = 0.85
    interval: int = 20
    scan: str = "early"
    first_depth: int = 0
    plain_margin: float = 1.1
    double_count: bool = False
    probe_every: int = 50

    def __post_init__(self) -> None:
        require_depth(self.depth)
        checks = (
            (0 <= self.alpha <= 1, "alpha", "in [0, 1]"),
            (0 <= self.match_ratio <= 1, "match_ratio", "in [0, 1]"),
            (0 <= self.decay < 1, "decay", "in [0, 1)"),
            (self.interval >= 1, "interval", ">= 1 steps"),
            (self.scan in SCANS, "scan", f"one of {', '.join(SCANS)}"),
            (0 <= self.first_depth <= min(1, self.depth), "first_depth", "0 or 1, and <= depth"),
            (self.plain_margin > 0, "plain_margin", "> 0"),
            (self.probe_every >= 1, "probe_every", ">= 1 steps"),
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
        """``depth``."""
        return self.depth

    def init(self, num_slots: int) -> SmartspecState:
        """The initial rates; the first step decides."""
        return SmartspecState(
            alpha=torch.tensor(self.alpha, dtype=torch.float64),
            match_ratio=torch.tensor(self.match_ratio, dtype=torch.float64),
            depth=0,
            num_steps=0,
            num_idle=0,
        )

    def plan(self, ctx: StepContext, state: SmartspecState) -> Tensor:
        """Int [B], one depth everywhere."""
        return torch.full_like(ctx.slots, self._planned(ctx, state))

    def observe(self, ctx: StepContext, verdict: Verdict, state: SmartspecState) -> SmartspecState:
        """The rates after the step, and the depth that holds until the next decision."""
        if ctx.num_rows == 0:
            return state
        planned = self._planned(ctx, state)
        return SmartspecState(
            alpha=self._mixed(state.alpha, *_decided(verdict, self.depth)),
            match_ratio=self._mixed(state.match_ratio, *_matched(ctx, verdict, planned)),
            depth=self._decided_depth(ctx, state),
            num_steps=state.num_steps + 1,
            num_idle=0 if planned else state.num_idle + 1,
        )

    def goodput(self, ctx: StepContext, state: SmartspecState) -> Tensor:
        """Float64 [depth + 1]: predicted tokens per second at each depth."""
        depths = torch.arange(self.depth + 1, device=ctx.slots.device)
        alpha = state.alpha.to(depths.device)
        num_matched = state.match_ratio.to(depths.device) * ctx.num_rows
        emitted = num_matched * (alpha**depths).cumsum(dim=0) + ctx.num_rows - num_matched
        rows = torch.tensor(ctx.num_rows, device=depths.device)
        times = cost_of(ctx).step_time_s(
            decode_rows=rows,
            tokens=num_matched * depths + ctx.num_rows * (2 if self.double_count else 1),
            context_tokens=cached_tokens(ctx),
            draft_tokens=depths,
        )
        return emitted / times.total_s

    def _planned(self, ctx: StepContext, state: SmartspecState) -> int:
        """The depth of this step: what is decided, or 1 to probe."""
        depth = self._decided_depth(ctx, state)
        return min(1, self.depth) if depth == 0 and state.num_idle >= self.probe_every else depth

    def _decided_depth(self, ctx: StepContext, state: SmartspecState) -> int:
        """The depth in force, or a new one if a decision is due."""
        if ctx.num_rows == 0 or state.num_steps % self.interval != 0:
            return state.depth
        values = self.goodput(ctx, state)
        values[0] *= self.plain_margin
        search = early_stop if self.scan == "early" else arg_max
        # leaves the device once in `interval` steps
        return self.first_depth + int(search(values[self.first_depth :]))

    def _mixed(self, average: Tensor, part: Tensor, whole: Tensor) -> Tensor:
        """The moving average after an observation of ``part / whole``; unchanged where whole is 0."""
        average = average.to(part.device)
        observation = part / whole.clamp(min=1)
        return torch.where(whole > 0, self.decay * average + (1 - self.decay) * observation, average)


def _decided(verdict: Verdict, depth: int) -> tuple[Tensor, Tensor]:
    """Accepted tokens, and tokens that the target decided about, over all rows."""
    seen = observed(verdict, depth)
    return seen.accepted.sum(), seen.reached.sum()


def _matched(ctx: StepContext, verdict: Verdict, planned: int) -> tuple[Tensor, Tensor]:
    """Rows with a draft, and rows that could use one; none where none was planned."""
    usable = (ctx.remaining_tokens > 1) & (ctx.depth_caps > 0) & (planned > 0)
    if verdict.draft is None:
        return torch.zeros_like(usable.sum()), usable.sum()
    return (usable & (verdict.draft.lengths > 0)).sum(), usable.sum()
