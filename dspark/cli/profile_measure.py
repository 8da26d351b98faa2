"""What `dspark profile` times: passes of the target alone, and steps of the engine at given depths.

Sizes and repeats come in one shuffled order, so that a machine that slows down or heats up does
not bend the curve. Every size is run once untimed before, since first calls pay for buffers and
kernels that later ones find.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dspark.engine.clock import WallClock
from dspark.engine.engine import Engine
from dspark.models.base import PassRow
from dspark.policies.depth_schedule import DepthSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark.cli.profile_samples import DraftSize, PassSize, Samples
    from dspark.cli.session import Session
    from dspark.models.kv_cache import KVCache
    from dspark.models.target import HFTarget
    from dspark.types import Request, StepRecord


def num_runs(samples: Samples, sizes: Sequence[PassSize | DraftSize]) -> int:
    """Runs that are left, warm-ups included."""
    left = list(samples.left(sizes))
    return len(left) + len({size for size, _ in left})


@torch.inference_mode()
def measure_passes(
    target: HFTarget, samples: Samples, sizes: Sequence[PassSize], *, seed: int, progress: Callable[[], None]
) -> None:
    """Time what is left of the passes: random tokens, over a cache of random numbers.

    All logits are asked for, as verification does. The tokens are spread evenly over the rows.
    ``progress`` is called after every run, timed or not.
    """
    order = list(samples.left(sizes))
    random.Random(seed).shuffle(order)
    bench = _Passes(target, sizes, seed)
    for size in dict.fromkeys(size for size, _ in order):
        bench.seconds(size)
        progress()
    for size, repeat in order:
        samples.add(size, repeat, bench.seconds(size))
        progress()


def measure_steps(
    session: Session,
    samples: Samples,
    sizes: Sequence[DraftSize],
    *,
    prompt_tokens: int,
    seed: int,
    progress: Callable[[], None],
) -> None:
    """Time what is left of the steps, in one run of the engine a number of rows.

    The drafter's seconds are those of the phase "draft"; all seconds that are neither the drafter's
    nor the target's are overhead. Prompts are the workload's, cut, and repeated where there are
    fewer than rows.
    """
    chance = random.Random(seed)
    counts = sorted({size.rows for size in sizes})
    chance.shuffle(counts)
    for num_rows in counts:
        order = list(samples.left([size for size in sizes if size.rows == num_rows]))
        chance.shuffle(order)
        if order:
            _run_schedule(session, samples, order, prompt_tokens=prompt_tokens, progress=progress)


class _Passes:
    """Caches full of random numbers, one a number of rows, and passes over them."""

    def __init__(self, target: HFTarget, sizes: Sequence[PassSize], seed: int) -> None:
        self._target, self._clock = target, WallClock(target.device)
        self._chance = random.Random(seed)
        self._room = {
            rows: max(size.context + -(-size.tokens // rows) for size in sizes if size.rows == rows)
            for rows in {size.rows for size in sizes}
        }
        self._caches: dict[int, KVCache] = {}
        self._generator = torch.Generator(target.device).manual_seed(seed)

    def seconds(self, size: PassSize) -> float:
        """Seconds of one pass."""
        cache, rows = self._cache(size.rows), self._rows(size)
        start_s = self._clock.now_s()
        self._target.forward(rows, cache)
        return self._clock.now_s() - start_s

    def _rows(self, size: PassSize) -> list[PassRow]:
        each, more = divmod(size.tokens, size.rows)
        counts = [each + (slot < more) for slot in range(size.rows)]
        return [
            PassRow(slot=slot, start=size.context, token_ids=self._tokens(count), num_logits=count)
            for slot, count in enumerate(counts)
        ]

    def _tokens(self, count: int) -> list[int]:
        return [self._chance.randrange(self._target.vocab_size) for _ in range(count)]

    def _cache(self, rows: int) -> KVCache:
        """The cache for so many rows; pages that nobody wrote would all be one page of zeros."""
        if rows not in self._caches:
            cache = self._target.new_cache(rows, self._room[rows])
            for slot in range(rows):
                cache.reserve(slot, self._room[rows])
            for layer in (*cache.keys, *cache.values):
                layer.uniform_(-1, 1, generator=self._generator)
            self._caches[rows] = cache
        return self._caches[rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schedule:
    """The depths of a run: each once untimed, then the samples in their order."""

    warm_ups: tuple[int, ...]
    order: tuple[tuple[DraftSize, int], ...]

    @property
    def depths(self) -> tuple[int, ...]:
        """Of all full steps."""
        return (*self.warm_ups, *(size.depth for size, _ in self.order))


def _run_schedule(
    session: Session,
    samples: Samples,
    order: Sequence[tuple[DraftSize, int]],
    *,
    prompt_tokens: int,
    progress: Callable[[], None],
) -> None:
    """Run an engine of so many rows until every depth of the order has been timed."""
    schedule = _Schedule(warm_ups=tuple(dict.fromkeys(size.depth for size, _ in order)), order=tuple(order))
    num_rows = order[0][0].rows
    engine = Engine(
        session.target,
        session.drafter,
        DepthSchedule(depths=schedule.depths),
        verification=session.prepared.verification,
        max_batch_size=num_rows,
        prefill_chunk=session.prepared.config.engine.prefill_chunk,
        seed=session.prepared.config.engine.seed,
    )
    requests = _requests(session.prepared.requests, num_rows, prompt_tokens, room_tokens(schedule.depths))
    used = 0
    for step in engine.run(requests):
        if engine.policy_state == used:
            continue  # prompts are still read
        if used >= len(schedule.warm_ups):
            size, repeat = schedule.order[used - len(schedule.warm_ups)]
            assert all(row.allowed == size.depth for row in step.rows), f"{size} was cut for lack of room"
            samples.add(size, repeat, step.time_split_s["draft"], _overhead_s(step))
        progress()
        used += 1
        if used == len(schedule.depths):
            return


def room_tokens(depths: Sequence[int]) -> int:
    """Output tokens that leave every one of these steps its depth, whatever is accepted."""
    return sum(depth + 1 for depth in depths) + max(depths) + 2


def _overhead_s(step: StepRecord) -> float:
    """Seconds of a step that are neither the drafter's nor the target's."""
    return sum(seconds for phase, seconds in step.time_split_s.items() if phase not in ("draft", "target"))


def _requests(
    requests: Sequence[Request], num_rows: int, prompt_tokens: int, max_new_tokens: int
) -> list[Request]:
    """So many requests that nothing ends early, with the temperature and filters of the run."""
    found = []
    for i in range(num_rows):
        request = requests[i % len(requests)]
        params = replace(
            request.params,
            max_new_tokens=max_new_tokens,
            min_new_tokens=0,
            stop=(),
            ignore_eos=True,
            max_depth=None,
        )
        prompt_ids = request.prompt_ids[:prompt_tokens]
        found.append(
            replace(request, request_id=f"row {i}", prompt_ids=prompt_ids, params=params, arrival_s=0.0)
        )
    return found
