"""The depth of every batch size, from a trace of drafts and a machine's costs.

At batch size B and depth k a step with B rows takes the cost model's seconds for the passes that these
rows make on average, and emits B times what a row emits on average; both are read off the trace, by
walking every request with drafts of k. How sure that is comes from drawing the trace's requests again and
again (a bootstrap), with the same draws for all depths, so that depths are compared on the same text.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from dspark.analysis.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.analysis.replay.trace import AcceptanceTrace
    from dspark.cost.base import CostModel


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """What is tried, and when two depths count as equal.

    Raises:
        ValueError: a list is empty or does not ascend, or a number is out of range.
    """

    batch_sizes: tuple[int, ...]  # each holds half way, by ratio, to its neighbours
    max_batch_size: int  # the last one holds up to here
    max_depth: int | None = None  # None: the trace's
    confidence: float = 0.95  # that a deeper depth is better, before it is taken
    tolerance: float = 0.0  # share of the best speed that a smaller depth may lose
    num_resamples: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = self.batch_sizes
        if not sizes or sizes[0] != 1 or any(a >= b for a, b in itertools.pairwise(sizes)):
            raise ValueError(f"batch_sizes must ascend from 1, got {list(sizes)}")
        if self.max_batch_size < sizes[-1]:
            raise ValueError(
                f"max_batch_size must be at least the last batch size, {sizes[-1]}, got {self.max_batch_size}"
            )
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence must be in [0.5, 1), got {self.confidence}")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance must be in [0, 1), got {self.tolerance}")
        if self.num_resamples < 20:
            raise ValueError(f"num_resamples must be >= 20, got {self.num_resamples}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedSize:
    """One batch size: modelled speeds of all depths, and the one that was chosen."""

    batch_size: int
    speeds: tuple[float, ...]  # tokens/s by depth, from 0
    losses: tuple[
        float, ...
    ]  # share of the best depth's speed that each loses, at the least, with confidence
    best: int
    chosen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """Sums of walking each request with fixed depths 0 to K; every array is float64 [R, K + 1]."""

    rounds: np.ndarray
    emitted: np.ndarray
    pass_tokens: np.ndarray
    context_tokens: np.ndarray
    depths: np.ndarray  # tokens drafted one after another


def walk(trace: AcceptanceTrace, max_depth: int) -> Walks:
    """What fixed depths do to every request of the trace."""
    shape = (trace.num_requests, max_depth + 1)
    names = ("rounds", "emitted", "pass_tokens", "context_tokens", "depths")
    sums = {name: np.zeros(shape) for name in names}
    starts = trace.starts
    for request in range(trace.num_requests):
        length, prompt = int(trace.output_tokens[request]), int(trace.prompt_tokens[request])
        room = int(trace.max_tokens[request])
        at = slice(int(starts[request]), int(starts[request]) + length - 1)
        accepted, drafted = trace.accepted[at].tolist(), trace.drafted[at].tolist()
        for depth in range(max_depth + 1):
            emitted = 1
            while emitted < length:
                verified = min(depth, drafted[emitted - 1], room - prompt - emitted - 1)
                new = min(min(accepted[emitted - 1], verified) + 1, length - emitted)
                sums["rounds"][request, depth] += 1
                sums["emitted"][request, depth] += new
                sums["pass_tokens"][request, depth] += 1 + verified
                sums["context_tokens"][request, depth] += prompt + emitted - 1
                sums["depths"][request, depth] += verified
                emitted += new
    return Walks(**sums)


def speeds(walks: Walks, cost: CostModel, batch_size: int, weights: np.ndarray) -> np.ndarray:
    """Modelled tokens/s, float64 [S, K + 1], of steps with ``batch_size`` rows.

    Args:
        walks: of R requests.
        cost: seconds of a step.
        batch_size: decode rows.
        weights: float [S, R], how often each request counts in each of S draws.
    """
    rounds = weights @ walks.rounds
    mean = {
        name: (weights @ getattr(walks, name)) / rounds
        for name in ("emitted", "pass_tokens", "context_tokens")
    }
    depths = np.broadcast_to(np.arange(walks.rounds.shape[1]), rounds.shape)
    time = cost.step_time_s(
        decode_rows=torch.full(rounds.shape, batch_size),
        tokens=torch.from_numpy(batch_size * mean["pass_tokens"]),
        context_tokens=torch.from_numpy(batch_size * mean["context_tokens"]),
        draft_tokens=torch.from_numpy(depths.copy()),
    )
    return batch_size * mean["emitted"] / time.total_s.double().numpy()


def tune(trace: AcceptanceTrace, cost: CostModel, settings: TuneSettings) -> tuple[TunedSize, ...]:
    """The depth of every batch size.

    Of the depths that do not lose more than ``tolerance`` against the best one, with ``confidence``, the
    smallest is taken, because what is drafted less is wasted less; but the batch size before keeps its
    depth as long as that is one of them, so that a schedule does not flap.

    Raises:
        ValueError: drafts deeper than the trace holds, a trace whose requests have one token each, or
            one of a live run.
    """
    trace.check_whole("tuning")
    max_depth = trace.depth if settings.max_depth is None else settings.max_depth
    if not 0 < max_depth <= trace.depth:
        raise ValueError(f"max_depth must be in [1, {trace.depth}], the trace's, got {max_depth}")
    if trace.num_positions == 0:
        raise ValueError("the trace's requests have one output token each: record longer ones")
    walks = walk(trace, max_depth)
    generator = np.random.default_rng(settings.seed)
    draws = generator.multinomial(
        trace.num_requests,
        np.full(trace.num_requests, 1 / trace.num_requests),
        size=settings.num_resamples,
    )
    found: list[TunedSize] = []
    for batch_size in settings.batch_sizes:
        plain = speeds(walks, cost, batch_size, np.ones((1, trace.num_requests)))[0]
        drawn = speeds(walks, cost, batch_size, draws.astype(np.float64))
        best = int(plain.argmax())
        loss = 1 - drawn / drawn[:, best : best + 1]
        surely = np.quantile(loss, 1 - settings.confidence, axis=0)  # lost at least, with confidence
        ties = [depth for depth in range(max_depth + 1) if surely[depth] <= settings.tolerance]
        last = found[-1].chosen if found else None
        chosen = last if last is not None and last in ties else min(ties)
        found.append(
            TunedSize(
                batch_size=batch_size,
                speeds=tuple(plain.tolist()),
                losses=tuple(surely.tolist()),
                best=best,
                chosen=chosen,
            )
        )
    return tuple(found)


def schedule_of(sizes: Sequence[TunedSize], settings: TuneSettings, **origin: str | None) -> Schedule:
    """The chosen depths as ranges of batch sizes; two sizes that were tried part at their geometric mean."""
    tried = [size.batch_size for size in sizes]
    ends = [math.isqrt(low * high) for low, high in itertools.pairwise(tried)] + [settings.max_batch_size]
    starts = [1, *(end + 1 for end in ends[:-1])]
    ranges = tuple((start, end, size.chosen) for start, end, size in zip(starts, ends, sizes, strict=True))
    return Schedule(depths=ranges, **origin).merged()
