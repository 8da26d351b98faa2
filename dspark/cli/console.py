"""What people see: progress and messages on stderr, tables and paths on stdout."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from rich.console import Console
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

    from dspark.types import StepRecord

_REFRESH_S = 0.5


def stdout() -> Console:
    """The console of results; wide where it is not a terminal, so that no table is cut."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def stderr() -> Console:
    """The console of progress and messages; plain lines in a notebook too, where a bar would be a widget."""
    return Console(stderr=True, highlight=False, soft_wrap=True, force_jupyter=False)


@contextlib.contextmanager
def shown_messages(console: Console) -> Iterator[None]:
    """Show this package's log messages on the console while the context lasts."""
    handler = _ConsoleHandler(console)
    logger = logging.getLogger("dspark")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class CellProgress:
    """A bar over the requests of all cells; plain lines where stderr is no terminal.

    It is drawn between steps, at most twice a second, so no thread of its own competes with the
    measured work.
    """

    def __init__(self, console: Console, *, num_cells: int, num_requests: int) -> None:
        self._console, self._num_cells = console, num_cells
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("requests, {task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=num_cells * num_requests, speed="")
        self._cell = 0
        self._tokens, self._seconds, self._drawn_s = 0, 0.0, 0.0
        self._seconds_of = ""

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar while the context lasts."""
        with self._bar:
            yield

    def skip(self, num_requests: int) -> None:
        """Count requests that an earlier start has finished."""
        self._bar.advance(self._task, num_requests)

    def start_cell(self, number: int, name: str) -> None:
        """Name the cell that runs now; ``number`` counts from 1."""
        self._cell, self._tokens, self._seconds = number, 0, 0.0
        self._bar.update(self._task, description=f"cell {number} of {self._num_cells}: {name}", speed="")
        self._bar.refresh()

    def step(self, step: StepRecord) -> None:
        """Count a step."""
        self._tokens += sum(len(chunk.token_ids) for chunk in step.chunks)
        self._seconds += step.wall_s
        self._seconds_of = "modelled " if step.is_modelled else ""
        finished = sum(chunk.completion is not None for chunk in step.chunks)
        if finished:
            self._bar.advance(self._task, finished)
        now_s = time.monotonic()
        if self._console.is_terminal and now_s - self._drawn_s > _REFRESH_S and self._seconds > 0:
            self._bar.update(
                self._task, speed=f"{self._tokens / self._seconds:.1f} {self._seconds_of}tokens/s"
            )
            self._bar.refresh()
            self._drawn_s = now_s

    def end_cell(self, name: str) -> None:
        """Say how the cell went, where no bar says it."""
        if not self._console.is_terminal and self._seconds > 0:
            speed = self._tokens / self._seconds
            self._console.print(
                f"cell {self._cell} of {self._num_cells}: {name}: {self._tokens} tokens, "
                f"{speed:.1f} {self._seconds_of}tokens/s in {self._seconds:.1f} {self._seconds_of}s",
                markup=False,
            )


class _ConsoleHandler(logging.Handler):
    """Prints messages above a live bar, warnings with their level."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        self._console.print(f"{level}{record.getMessage()}", markup=False)
