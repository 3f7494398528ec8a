"""The command line: noun–verb commands over the packages below, one module per noun.

A command is a typed function; its options are its parameters. Nothing heavy is imported before a command needs it, so
that `headgate --help` and completion stay quick. Exit status: 0 done, 1 a check, a test or a filter failed, 2 wrong
usage.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line, by default the process's; gives the exit status and raises nothing of Headgate's."""
    try:
        from headgate.cli.application import main as run
    except KeyboardInterrupt:
        return _INTERRUPTED
    return run(arguments)
