"""Waiting for what no call and no callback tells: it is looked for again and again, within a limit."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

LIMIT_S = 60.0
_PAUSE_S = 0.005


def eventually(
    holds: Callable[[], object], otherwise: Callable[[], object] = lambda: "it did not happen in time"
) -> None:
    """Returns when `holds` does; fails with what `otherwise` gives then if that takes longer than a minute."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, otherwise()
        time.sleep(_PAUSE_S)


def until_closed(connected: socket.socket) -> bytes:
    """What comes until the other side closes or resets a connection."""
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := connected.recv(65536):
            data += piece
    return bytes(data)
