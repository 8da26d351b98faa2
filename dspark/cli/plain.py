"""Commands without settings, such as `dspark doctor`: flags and words instead of Hydra's overrides."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from dspark.cli.exit_codes import EXIT_INTERRUPTED, fail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class PlainParser(argparse.ArgumentParser):
    """A parser whose errors are one line that names the help, like those of every command."""

    def __init__(self, command: str, *, description: str, examples: str) -> None:
        super().__init__(
            prog=f"dspark {command}",
            description=f"{description}\n\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raises ValueError, where argparse would print its usage and exit."""
        raise ValueError(f"{message}; `{self.prog} --help` shows what it takes")


def plain_command(
    parser: PlainParser, arguments: Sequence[str], work: Callable[[argparse.Namespace], int]
) -> int:
    """The exit code of a command.

    Args:
        parser: of its flags and words.
        arguments: as typed.
        work: does it. It may raise ValueError and OSError for what the user can mend.
    """
    try:
        return work(parser.parse_args(arguments))
    except SystemExit as stop:  # --help
        return stop.code if isinstance(stop.code, int) else 0
    except (ValueError, OSError) as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
