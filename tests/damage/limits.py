"""What campaigns put around each mutation."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

HANG_S = 180


@contextmanager
def quiet() -> Iterator[None]:
    """The report of a failed run is not to be looked for above thousands of logged errors."""
    handlers = list(logging.getLogger().handlers)
    before = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for handler, level in zip(handlers, before, strict=True):
            handler.setLevel(level)


@contextmanager
def no_hang() -> Iterator[None]:
    """End what takes too long."""

    def hang(*_: object) -> None:
        raise TimeoutError(f"a reader hangs, or all together took more than {HANG_S} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
