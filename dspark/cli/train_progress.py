"""The bars of `dspark train`; plain lines where stderr is no terminal."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from dspark.training.trainer import Point

_TOLD_EVERY_S = 60.0


class TrainProgress:
    """A bar over steps, answers or lessons.

    Args:
        console: where it is drawn.
        what: is counted.
        total: of them.
        done: by earlier starts.
    """

    def __init__(self, console: Console, *, what: str, total: int, done: int = 0) -> None:
        self._console, self._what, self._total, self._done = console, what, total, done
        self._bar = Progress(
            TextColumn(what),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=1,
        )
        self._task = self._bar.add_task(what, total=total, completed=done, told="")
        self._started_s = self._said_s = time.monotonic()
        self._tokens = 0

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar while the context lasts."""
        with self._bar:
            yield

    def advance(self, tokens: int) -> None:
        """Count one of ``what``, of so many tokens."""
        self._done += 1
        self._tokens += tokens
        self._bar.update(self._task, completed=self._done, told=f"{self._speed():.0f} tokens/s")
        if not self._console.is_terminal and time.monotonic() - self._said_s > _TOLD_EVERY_S:
            self.say()

    def point(self, point: Point) -> None:
        """Show a point of the training's curves."""
        values = point.values
        told = f"loss {values['loss']:.3f}, expected tau {values['expected_tau']:.2f}"
        if point.kind == "train":
            self._done = point.step
            self._bar.update(self._task, completed=self._done, told=told)
            return
        if "predicted_tau" in values:
            told += f", greedy tau {values['predicted_tau']:.2f}"
        self._console.print(f"step {point.step} of {self._total}, held out: {told}", markup=False)

    def say(self) -> None:
        """A line about it."""
        self._said_s = time.monotonic()
        self._console.print(
            f"{self._what}: {self._done} of {self._total}, {self._tokens} tokens in this start, "
            f"{self._speed():.0f} tokens/s",
            markup=False,
        )

    def _speed(self) -> float:
        return self._tokens / max(time.monotonic() - self._started_s, 1e-9)
