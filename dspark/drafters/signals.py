"""Signals that a drafter's logits give, computed only where somebody reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.types import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

LOGIT_SIGNALS = frozenset({Signal.TOP1_PROBABILITY, Signal.ENTROPY, Signal.MARGIN, Signal.TOKEN_PROBABILITY})
"""What any drafter with logits can give."""


class LogitSignals:
    """Signals float [B, K] of a draft in the making, NaN where nothing was drafted.

    Probabilities are of the softmax of the raw logits, before temperature and filters, so that a
    threshold means the same for greedy and sampled rows.
    """

    def __init__(
        self, num_rows: int, max_depth: int, wanted: frozenset[Signal], device: torch.device
    ) -> None:
        self._values = {s: torch.full((num_rows, max_depth), torch.nan, device=device) for s in wanted}

    def record(
        self,
        rows: Tensor,
        k: int,
        logits: Tensor,
        drawn: Tensor,
        given: Mapping[Signal, Tensor] | None = None,
    ) -> None:
        """Note depth k (from 1) of ``rows`` [R].

        Args:
            rows: int [R], of the step's batch.
            k: depth.
            logits: float [R, W] over the drafter's own vocabulary.
            drawn: int [R], the drawn tokens in it.
            given: float [R] of signals that do not come from logits.
        """
        given = given or {}
        asked = [signal for signal in self._values if signal not in given]
        log_q = torch.log_softmax(logits, -1) if asked else logits
        for signal, values in self._values.items():
            found = given[signal] if signal in given else _compute(signal, log_q, drawn)
            values[rows, k - 1] = found.to(values.device)

    def upto(self, k: int) -> Mapping[Signal, Tensor]:
        """Signals float [B, k] of the first k depths."""
        return {signal: values[:, :k] for signal, values in self._values.items()}

    def all(self) -> Mapping[Signal, Tensor]:
        """Signals float [B, K]."""
        return dict(self._values)


def _compute(signal: Signal, log_q: Tensor, drawn: Tensor) -> Tensor:
    if signal is Signal.TOKEN_PROBABILITY:
        return log_q.gather(1, drawn[:, None]).squeeze(1).exp()
    if signal is Signal.TOP1_PROBABILITY:
        return log_q.amax(-1).exp()
    if signal is Signal.MARGIN:
        if log_q.shape[1] == 1:  # a certain token has no runner-up
            return torch.full_like(log_q[:, 0], torch.inf)
        top = log_q.topk(2, -1).values
        return top[:, 0] - top[:, 1]
    assert signal is Signal.ENTROPY, f"logits do not give {signal}"
    return -(log_q.exp() * log_q).nan_to_num(0.0).sum(-1)
