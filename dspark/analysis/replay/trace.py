"""What a drafter would have proposed at every position of every output, and how much of it was right.

A live run visits only the positions where its rounds begin. A counterfactual trace has them all, so
that any policy can be run again on it: under greedy and coupled verification the text of a request does
not depend on drafts, and neither does what would be drafted behind a given beginning of it.

Positions are counted in output tokens: at position e the request has emitted e tokens, the prefill's
first one included, and a draft would guess the tokens e, e + 1, ... A request of n output tokens has the
positions 1 to n - 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark.types import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceTrace:
    """R requests with N positions in all, one request after another.

    Raises:
        ValueError: arrays that do not go together, or counts out of range.
    """

    depth: int  # K, tokens of the longest draft
    request_ids: tuple[str, ...]  # R
    prompt_tokens: np.ndarray  # int64 [R]
    output_tokens: np.ndarray  # int64 [R], n
    max_tokens: np.ndarray  # int64 [R], prompt and output together, by cap or context
    drafted: np.ndarray  # int64 [N], tokens that the drafter proposes, up to K
    accepted: np.ndarray  # int64 [N], how many of them are accepted, one after another
    signals: Mapping[Signal, np.ndarray] = field(default_factory=dict)  # float64 [N, K], NaN past drafted
    autoregressive: bool = True  # the drafter asks after every token whether to go on
    origin: Mapping[str, Any] = field(default_factory=dict)  # target, drafter, verification, workload
    visited_only: bool = False  # known are the positions where rounds of depth K begin, and no others

    def __post_init__(self) -> None:
        num_requests, num_positions = len(self.request_ids), int((self.output_tokens - 1).sum())
        shapes = {
            "prompt_tokens": (num_requests,),
            "output_tokens": (num_requests,),
            "max_tokens": (num_requests,),
            "drafted": (num_positions,),
            "accepted": (num_positions,),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"a trace's {name} must have the shape {list(shape)}, as its requests and their output "
                    f"tokens say, got {list(getattr(self, name).shape)}"
                )
        for signal, values in self.signals.items():
            if values.shape != (num_positions, self.depth):
                raise ValueError(
                    f"a trace's signal {signal} must have the shape {[num_positions, self.depth]}, got "
                    f"{list(values.shape)}"
                )
        if num_requests == 0:
            raise ValueError("a trace needs a request, got none")
        ranges = (
            ("output_tokens", self.output_tokens, 1, None),
            ("drafted", self.drafted, 0, self.depth),
            ("accepted", self.accepted, 0, self.drafted),
            ("max_tokens", self.max_tokens, self.prompt_tokens + self.output_tokens, None),
        )
        for name, values, lowest, highest in ranges:
            if bool((values < lowest).any()) or (highest is not None and bool((values > highest).any())):
                raise ValueError(f"a trace's {name} is out of range: record or import it again")

    @property
    def num_requests(self) -> int:
        """R."""
        return len(self.request_ids)

    @property
    def num_positions(self) -> int:
        """N."""
        return len(self.drafted)

    @property
    def starts(self) -> np.ndarray:
        """Int64 [R]: where each request's positions begin among the N; position e is at start + e - 1."""
        return np.concatenate([[0], np.cumsum(self.output_tokens - 1)[:-1]]).astype(np.int64)

    def check_whole(self, asker: str) -> None:
        """Nothing, if every position is known.

        Raises:
            ValueError: the trace is of a live run, and holds what that one visited.
        """
        if self.visited_only:
            raise ValueError(
                f"{asker} needs every position, and this trace is of a live run with depth {self.depth}, "
                f"which tells of the positions where its rounds began: replay fixed {self.depth} or fixed 0, "
                "or make a whole trace with `dspark record`"
            )

    def of(self, requests: Sequence[int]) -> AcceptanceTrace:
        """The trace of these requests, by number, in this order; one may occur several times."""
        chosen = np.asarray(requests, dtype=np.int64)
        starts, counts = self.starts[chosen], self.output_tokens[chosen] - 1
        rows = np.concatenate([np.arange(s, s + c) for s, c in zip(starts, counts, strict=True)])
        return AcceptanceTrace(
            depth=self.depth,
            request_ids=tuple(self.request_ids[i] for i in chosen),
            prompt_tokens=self.prompt_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            max_tokens=self.max_tokens[chosen],
            drafted=self.drafted[rows],
            accepted=self.accepted[rows],
            signals={signal: values[rows] for signal, values in self.signals.items()},
            autoregressive=self.autoregressive,
            origin=self.origin,
            visited_only=self.visited_only,
        )
