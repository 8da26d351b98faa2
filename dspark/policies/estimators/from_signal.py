"""A drafter's signal, taken at its word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark.policies.estimators.base import Estimator, read_signal
from dspark.types import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from dspark.policies.base import State
    from dspark.types import StepContext

PROBABILITIES = (Signal.TOP1_PROBABILITY, Signal.TOKEN_PROBABILITY, Signal.CONFIDENCE)
"""Signals that are probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSignal(Estimator):
    """The signal itself as conditional acceptance.

    * ``top1``: the largest draft probability, max_v q(v|x_<k) (Kangaroo, arXiv 2404.18911; vLLM's
      ``confidence_stop``).
    * ``token_probability``: q(x_k|x_<k) of the drawn token (transformers'
      ``assistant_confidence_threshold``). It knows the token, so a policy that drops a token by it
      is of class D.
    * ``confidence``: the drafter's trained head (DSpark, arXiv 2607.05147).

    Raises:
        ValueError: ``signal`` is not a probability.
    """

    signal: str

    def __post_init__(self) -> None:
        if self.signal not in PROBABILITIES:
            choices = ", ".join(PROBABILITIES)
            raise ValueError(f"signal must be a probability ({choices}), got {str(self.signal)!r}")

    @property
    def needs(self) -> frozenset[Signal]:
        """The signal."""
        return frozenset({Signal(self.signal)})

    def conditional(
        self, ctx: StepContext, signals: Mapping[Signal, Tensor] | None, width: int, state: State
    ) -> Tensor:
        """Float64 [B, width], the signal; 0 where nothing was drafted."""
        return read_signal(signals, Signal(self.signal), width, _NAMES[Signal(self.signal)]).nan_to_num(
            nan=0.0
        )


_NAMES = {
    Signal.TOP1_PROBABILITY: "top1",
    Signal.TOKEN_PROBABILITY: "token_probability",
    Signal.CONFIDENCE: "confidence",
}
