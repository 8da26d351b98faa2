"""The other end of a worker process: start it, ask it, keep it still while others are measured."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

TAIL_LINES = 20


class WorkerError(RuntimeError):
    """A worker ended or fell silent; the message ends with the last lines of its standard error."""


class Worker:
    """A process that answers a line of JSON with a line of JSON.

    Between two questions the process is stopped (SIGSTOP), with all its threads: thread pools that
    spin for work, and whatever else an idle engine does, would take the cores from the side that is
    being measured.

    Args:
        name: for messages.
        command: what to run.
        env: its whole environment.
        log: the file that takes its standard error.
        timeout_s: how long an answer may take, the first one included.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        timeout_s: float = 1800.0,
    ) -> None:
        self.name, self._log, self._timeout_s = name, log, timeout_s
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                # a group of its own in our session: it can be stopped whole, and should we be killed,
                # the kernel wakes and hangs up a group whose parent is gone
                process_group=0,
            )

    @property
    def pid(self) -> int:
        """Id of the process, and of its group."""
        return self._process.pid

    def ready(self) -> dict[str, Any]:
        """What the worker says of itself once it has loaded.

        Raises:
            WorkerError: it ended first, or took too long.
        """
        return self._answer()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            WorkerError: the worker ended, or took too long.
        """
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        return self._answer()

    def close(self, timeout_s: float = 20.0) -> None:
        """Ends the process: by the end of its input, and by force if it lingers."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # one line answers one request, so nothing is left in the stream's buffer when this waits
        if not select.select([self._process.stdout], [], [], self._timeout_s)[0]:
            raise WorkerError(f"{self.name} gave no answer within {self._timeout_s:g} s{self._tail()}")
        line = self._process.stdout.readline()
        if not line:
            raise self._died()
        self._signal(signal.SIGSTOP)
        return json.loads(line)

    def _died(self) -> WorkerError:
        code = self._process.wait()
        return WorkerError(f"{self.name} ended with code {code}{self._tail()}")

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"; the end of {self._log}:", *lines])

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)
