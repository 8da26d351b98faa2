"""The bar of `dspark profile`: drawn between timed runs, so that no thread competes with them."""

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

_REFRESH_S = 0.5


class RunProgress:
    """A bar over all runs with the time that is left; plain lines where stderr is no terminal."""

    def __init__(self, console: Console, *, num_runs: int) -> None:
        self._console, self._num_runs, self._num_done = console, num_runs, 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("runs,"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=num_runs)
        self._drawn_s, self._started_s = 0.0, time.monotonic()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Name what is measured while the context lasts."""
        self._bar.update(self._task, description=name)
        with self._bar:
            yield
        if not self._console.is_terminal:
            seconds = time.monotonic() - self._started_s
            self._console.print(
                f"{name}: {self._num_done} of {self._num_runs} runs after {seconds:.0f} s", markup=False
            )

    def advance(self) -> None:
        """Count a run."""
        self._num_done += 1
        self._bar.advance(self._task)
        now_s = time.monotonic()
        if now_s - self._drawn_s > _REFRESH_S:
            self._bar.refresh()
            self._drawn_s = now_s
