"""From positions as they come, in any order, to a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark.analysis.replay.trace import AcceptanceTrace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark.types import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """A request whose text is known."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    max_tokens: int  # prompt and output together, by cap or context


class TraceBuilder:
    """Positions are added as a recording meets them.

    Args:
        depth: K, of every draft.
        signals: that every position has.
    """

    def __init__(self, depth: int, signals: frozenset[Signal]) -> None:
        self._depth, self._signals = depth, signals
        self._positions: dict[tuple[str, int], tuple[int, int, dict[Signal, list[float]]]] = {}

    def add(
        self,
        request_id: str,
        position: int,
        *,
        drafted: int,
        accepted: int,
        signals: Mapping[Signal, Sequence[float]],
    ) -> None:
        """What was drafted at a position, and how much of it is right; the last telling counts."""
        told = {signal: list(signals[signal])[:drafted] if drafted else [] for signal in self._signals}
        self._positions[request_id, position] = (drafted, accepted, told)

    def trace(
        self, requests: Sequence[TracedRequest], *, autoregressive: bool, origin: Mapping[str, Any]
    ) -> AcceptanceTrace:
        """The trace of these requests.

        Raises:
            ValueError: a position of theirs was not added.
        """
        drafted, accepted = [], []
        signals: dict[Signal, list[list[float]]] = {signal: [] for signal in self._signals}
        for request in requests:
            for position in range(1, request.output_tokens):
                found = self._positions.get((request.request_id, position))
                if found is None:
                    raise ValueError(
                        f"request {request.request_id!r} has no position {position} on record: "
                        "record it again"
                    )
                drafted.append(found[0])
                accepted.append(found[1])
                for signal, values in signals.items():
                    row = found[2][signal]
                    values.append(row + [np.nan] * (self._depth - len(row)))
        return AcceptanceTrace(
            depth=self._depth,
            request_ids=tuple(request.request_id for request in requests),
            prompt_tokens=np.array([request.prompt_tokens for request in requests], dtype=np.int64),
            output_tokens=np.array([request.output_tokens for request in requests], dtype=np.int64),
            max_tokens=np.array([request.max_tokens for request in requests], dtype=np.int64),
            drafted=np.array(drafted, dtype=np.int64),
            accepted=np.array(accepted, dtype=np.int64),
            signals={
                signal: np.array(values, dtype=np.float64).reshape(-1, self._depth)
                for signal, values in signals.items()
            },
            autoregressive=autoregressive,
            origin=dict(origin),
        )
