"""A drafter without a model: meaningless tokens, and confidences of a chosen profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark import seeding
from dspark.drafters.base import DraftBatch, Drafter, Proceed
from dspark.types import NO_TOKEN, Draft, Signal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Lanes far above the committed lengths that other users of the stream count by.
_TOKEN_LANE = 1 << 40
_SPREAD_LANE = 2 << 40


class SyntheticDrafter(Drafter):
    """Draws tokens uniformly from the vocabulary and says how often they shall be accepted.

    Under an exact verification rule it is a drafter that is almost always wrong: its tokens are
    point masses that know nothing of the target. Under ``verification=synthetic`` its CONFIDENCE
    signal is the probability of acceptance, so that batching, depth policies and cost models can
    be studied at any acceptance profile without a drafter to train or download.

    Everything it draws is a function of (request seed, position, committed length).

    Args:
        vocab_size: V, the target's.
        acceptance: conditional acceptance c_k of depth k = 1, 2, ...; the last value holds for all
            deeper positions.
        spread: standard deviation, in logits, of a Gaussian that a row's whole profile is shifted
            by, anew in every step; the median profile stays ``acceptance``. 0: all rows are alike.
        autoregressive: draft one token after another and ask ``proceed``; False gives the whole
            block at once, as block drafters do.

    Raises:
        ValueError: an argument is outside its range.
    """

    signals = frozenset({Signal.CONFIDENCE})
    deterministic = True
    vocab_size: int
    max_context = None

    def __init__(
        self,
        vocab_size: int,
        acceptance: Sequence[float] = (0.8,),
        spread: float = 0.0,
        *,
        autoregressive: bool = True,
    ) -> None:
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be >= 1, got {vocab_size}")
        if not acceptance:
            raise ValueError("acceptance must hold a conditional acceptance for depth 1 at least, got none")
        for depth, rate in enumerate(acceptance, start=1):
            if not 0 <= rate <= 1:
                raise ValueError(f"acceptance must be in [0, 1] at every depth, got {rate} at depth {depth}")
        if not 0 <= spread < float("inf"):
            raise ValueError(f"spread must be finite and >= 0 logits, got {spread}")
        self.vocab_size = vocab_size
        self.acceptance = tuple(float(rate) for rate in acceptance)
        self.spread = float(spread)
        self.autoregressive = autoregressive

    def open(self, num_slots: int, max_depth: int, max_context: int) -> None:
        """Nothing to allocate: rows have no state."""

    def release(self, slot: int) -> None:
        """Nothing to forget."""

    def propose(self, batch: DraftBatch, plan: Tensor, proceed: Proceed) -> Draft:
        """Draft ``plan`` [B] tokens a row, or fewer where ``proceed`` ends a row."""
        depth = int(plan.max()) if plan.numel() else 0  # the width of the block is needed on the host
        k = torch.arange(depth, device=plan.device)
        confidence = self._confidence(batch, depth).float()
        lengths = plan
        if self.autoregressive:
            lengths = _stopped(plan, confidence, proceed)
        drafted = k < lengths[:, None]
        return Draft(
            tokens=self._tokens(batch, depth).where(drafted, NO_TOKEN),
            lengths=lengths.clone(),
            q=None,
            signals={Signal.CONFIDENCE: confidence.where(drafted, torch.nan)},
        )

    def _tokens(self, batch: DraftBatch, depth: int) -> Tensor:
        """Int [B, K] in [0, V)."""
        committed = batch.lengths[:, None]
        positions = committed + torch.arange(depth, device=committed.device)
        u = seeding.uniform(
            batch.seeds[:, None], positions, seeding.Purpose.SYNTHETIC, committed + _TOKEN_LANE
        )
        return (u * self.vocab_size).long()

    def _confidence(self, batch: DraftBatch, depth: int) -> Tensor:
        """Float64 [B, K], the profile as each row has it in this step."""
        rates = self.acceptance[:depth] + self.acceptance[-1:] * (depth - len(self.acceptance))
        profile = torch.tensor(rates, dtype=torch.float64, device=batch.lengths.device)
        profile = profile.expand(len(batch.tokens), depth)
        if self.spread == 0:
            return profile
        lanes = batch.lengths + _SPREAD_LANE
        u = seeding.uniform(batch.seeds, batch.lengths, seeding.Purpose.SYNTHETIC, lanes)
        shift = self.spread * torch.special.ndtri(u.clamp(min=2.0**-54))  # finite: u may be 0
        return torch.sigmoid(torch.logit(profile) + shift[:, None])


def _stopped(plan: Tensor, confidence: Tensor, proceed: Proceed) -> Tensor:
    """Int [B]: plan, or the depth at which the policy ended the row."""
    depth = confidence.shape[1]
    lengths = plan.clamp(max=1)
    for k in range(1, depth):
        drafted = torch.arange(k, device=plan.device) < lengths[:, None]
        goes_on = proceed(k, {Signal.CONFIDENCE: confidence[:, :k].where(drafted, torch.nan)})
        lengths = torch.where(goes_on & (lengths == k) & (plan > k), k + 1, lengths)
    return lengths
