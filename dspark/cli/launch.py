"""Hydra around a command: composes, makes the run's folder, sweeps; errors become one line."""

from __future__ import annotations

import contextlib
import difflib
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig

import dspark
from dspark.cli.exit_codes import EXIT_BUG, EXIT_INTERRUPTED, EXIT_USER_ERROR, fail
from dspark.config.compose import one_line, to_plain
from dspark.config.paths import config_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["EXIT_BUG", "EXIT_INTERRUPTED", "EXIT_USER_ERROR", "Invocation", "fail", "launch"]

_PACKAGE = Path(dspark.__file__).parent
FLAGS = (
    *(
        "--help",
        "-h",
        "--hydra-help",
        "--version",
        "--cfg",
        "-c",
        "--resolve",
        "--package",
        "-p",
        "--run",
        "-r",
    ),
    *("--multirun", "-m", "--shell-completion", "-sc", "--config-path", "-cp", "--config-name", "-cn"),
    *("--config-dir", "-cd", "--experimental-rerun", "--info", "-i"),
)
"""The flags of every command that takes settings; they are Hydra's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One job: a composed configuration and where its results go."""

    command: str
    arguments: tuple[str, ...]  # as typed
    overrides: tuple[str, ...]  # of this job; in a sweep, one value each
    plain: dict[str, Any]  # the configuration, without Hydra's own part
    run_dir: Path
    policy_option: str | None  # the chosen option of the group policy
    search_path: tuple[str, ...]  # Hydra overrides that extend the search path


class JobFailedError(Exception):
    """A job of a sweep failed in another process; its exit code travels back with this."""

    def __init__(self, code: int) -> None:
        super().__init__(code)  # pickled with its arguments
        self.code = code


def launch(command: str, arguments: Sequence[str], job: Callable[[Invocation], int]) -> int:
    """The exit code of a command; with --multirun the worst of its jobs.

    A launcher may run jobs in other processes (docs/sweeps.md); of those it is the first that failed.

    Args:
        command: name of the command and of its primary config.
        arguments: Hydra overrides and flags.
        job: does the work of one configuration. It may raise ValueError for what the user can mend.
    """
    codes: list[int] = []
    here = _process()

    def task(config: DictConfig) -> None:
        code = _guarded(lambda: job(_invocation(command, arguments, config)))
        if code and _process() != here:  # where the list is a copy
            raise JobFailedError(code)
        codes.append(code)

    try:
        _check_flags(arguments)
        with _process_arguments(command, arguments), _raised_errors():
            hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=command)(task)()
    except HydraException as error:
        return fail(one_line(error))
    except (ValueError, OSError) as error:
        return fail(str(error))
    except JobFailedError as error:
        print("dspark: a job failed; `dspark report` on the sweep's folder shows which", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as stop:  # --help and the like
        return stop.code if isinstance(stop.code, int) else 0
    return max(codes, default=0)


def _process() -> tuple[str, int]:
    """This process, among those of all machines."""
    return socket.gethostname(), os.getpid()


def _guarded(work: Callable[[], int]) -> int:
    """The code of the work. A mistake or a bug ends this job of a sweep, an interrupt all of them."""
    try:
        return work()
    except ValueError as error:
        return fail(str(error)) if _is_told(error) else _bug()
    except Exception:
        return _bug()


def _is_told(error: ValueError) -> bool:
    """True for an error that this package raised, as opposed to one that slipped out of a library."""
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(raised_in).is_relative_to(_PACKAGE)


def _bug() -> int:
    traceback.print_exc()
    print(
        "dspark: this is a bug: report it with the lines above and what `dspark doctor --json` prints",
        file=sys.stderr,
    )
    return EXIT_BUG


def _invocation(command: str, arguments: Sequence[str], config: DictConfig) -> Invocation:
    hydra_config = HydraConfig.get()
    overrides = [str(override) for override in hydra_config.overrides.hydra]
    return Invocation(
        command=command,
        arguments=tuple(arguments),
        overrides=tuple(str(override) for override in hydra_config.overrides.task),
        plain=to_plain(config),
        run_dir=Path(hydra_config.runtime.output_dir),
        policy_option=hydra_config.runtime.choices.get("policy"),
        search_path=tuple(override for override in overrides if override.startswith("hydra.searchpath")),
    )


def _check_flags(arguments: Sequence[str]) -> None:
    """Raises for an unknown flag, which Hydra's parser would answer with its usage."""
    for argument in arguments:
        name = argument.split("=")[0]
        if name.startswith("-") and name not in FLAGS:
            near = difflib.get_close_matches(name, FLAGS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"no flag {name}: {hint}settings are KEY=VALUE, and --help lists them")
        if argument.startswith(("install=", "uninstall=")):  # Hydra's script knows nothing of commands
            raise ValueError(f"{argument} is for other programs: `dspark completion bash` prints the script")


@contextlib.contextmanager
def _process_arguments(command: str, arguments: Sequence[str]) -> Iterator[None]:
    """Hydra reads the process's arguments; these are put in their place for a while."""
    kept = sys.argv
    sys.argv = [f"dspark {command}", *arguments]
    try:
        yield
    finally:
        sys.argv = kept


@contextlib.contextmanager
def _raised_errors() -> Iterator[None]:
    """Hydra raises its errors here, where it would print them and exit otherwise."""
    name = "HYDRA_FULL_ERROR"
    kept = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if kept is None:
            del os.environ[name]
        else:
            os.environ[name] = kept
