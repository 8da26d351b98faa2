"""The exit codes of commands, and the one line that a user's mistake is told in. Imports nothing heavy."""

from __future__ import annotations

import sys

EXIT_BUG, EXIT_USER_ERROR, EXIT_INTERRUPTED = 1, 2, 130


def fail(message: str) -> int:
    """The exit code of a user's mistake, told in one line on stderr."""
    print(f"dspark: error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USER_ERROR
