"""Engines measured in turns at every batch size, where one that dies is told of and the rest goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.bench.contenders import timed
from experiments.bench.measure import Measurement
from experiments.peers.vllm_sides import contender
from experiments.peers.worker import WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.progress import Progress

    from experiments.bench.contenders import Tokens
    from experiments.peers.worker import Worker

FAILURES = (WorkerError, AssertionError)
"""Of an engine: its process ended or fell silent; it gave another number of tokens than it was asked for."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An engine that failed, where, and what it said last."""

    side: str
    batch_size: int | None  # None: it did not come up
    said: str


class Engine:
    """A side whose process is started when it is needed, and again at the next batch size if it died.

    One that does not come up is not tried again.

    Args:
        name: of the side.
        start: a loaded worker; takes the number of this start, from 1.
    """

    def __init__(self, name: str, start: Callable[[int], Worker]) -> None:
        self.name, self._start = name, start
        self.findings: list[Finding] = []
        self._worker: Worker | None = None
        self._num_starts, self._is_given_up = 0, False

    def is_up(self) -> bool:
        """True if it can be asked; starts it if it has to."""
        if self._worker is None and not self._is_given_up:
            self._num_starts += 1
            try:
                self._worker = self._start(self._num_starts)
            except WorkerError as error:
                self._is_given_up = True
                self.findings.append(Finding(side=self.name, batch_size=None, said=str(error)))
        return self._worker is not None

    def timed(self, prompts: Tokens, num_new: int) -> tuple[float, Tokens] | None:
        """Seconds and tokens; None if it failed, which is then among the findings, and its process ended."""
        assert self._worker is not None
        try:
            return timed(contender(self._worker), prompts, num_new)
        except FAILURES as error:
            self.findings.append(Finding(side=self.name, batch_size=len(prompts), said=str(error)))
            self.close()
            return None

    def close(self) -> None:
        """End its process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class _Turn:
    """An engine's seconds and tokens at one batch size."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.long_s: list[float] = []
        self.short_s: list[float] = []
        self.tokens: Tokens = []

    def take(self, prompts: Tokens, num_new: int) -> bool:
        """True if both runs went through."""
        long = self.engine.timed(prompts, num_new)
        short = None if long is None else self.engine.timed(prompts, 1)
        if long is None or short is None:
            return False
        self.long_s.append(long[0])
        self.short_s.append(short[0])
        self.tokens = long[1]
        return True


def measure(
    engines: Sequence[Engine],
    prompts: Tokens,
    *,
    batch_sizes: Sequence[int],
    num_new: int,
    repeats: int,
    progress: Progress,
) -> list[Measurement]:
    """One measurement an engine and batch size that it got through.

    As in :func:`experiments.bench.measure.measure`: engines alternate within a repeat, their order
    rotates, and each runs once in full before, untimed.
    """
    found: list[Measurement] = []
    task = progress.add_task("measuring", total=len(batch_sizes) * len(engines) * (repeats + 1))
    for batch_size in batch_sizes:
        chosen = prompts[:batch_size]
        turns = [_Turn(engine) for engine in engines if engine.is_up()]
        turns = [turn for turn in turns if turn.engine.timed(chosen, num_new) is not None]
        progress.advance(task, len(engines))
        for repeat in range(repeats):
            first = repeat % max(len(turns), 1)
            failed = [turn for turn in turns[first:] + turns[:first] if not turn.take(chosen, num_new)]
            turns = [turn for turn in turns if turn not in failed]
            progress.advance(task, len(engines))
        found += [
            Measurement(
                side=turn.engine.name,
                batch_size=batch_size,
                num_new=num_new,
                long_s=turn.long_s,
                short_s=turn.short_s,
                same_rows=sum(a == b for a, b in zip(turn.tokens, turns[0].tokens, strict=True)),
            )
            for turn in turns
        ]
    return found
