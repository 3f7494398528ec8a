"""Cutting received bytes into frames: whole frames are read in place, the bytes of an incomplete one are kept."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import RemoteProtocolError

_SIZE = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class ProtocolViolation:
    """A fault of the peer: the last event. `is_answered`: a Close tells the peer; else the socket is closed."""

    error: RemoteProtocolError
    is_answered: bool = False


class FrameAssembler:
    """Bytes in, whole frames out; keeps one incomplete frame, or the bytes that came while reading was halted.

    `walk(view, position)` reads whole frames of a view from a position on and gives the place after the last one.
    It may set `is_halted`: the bytes behind then wait until `go_on`. `skip` drops the next bytes unread.
    """

    __slots__ = ("_held", "_skip", "_walk", "is_halted")

    def __init__(self, walk: Callable[[memoryview, int], int]) -> None:
        self._walk = walk
        self._held = bytearray()
        self._skip = 0
        self.is_halted = False

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for the rest of their frame, or for `go_on`."""
        return len(self._held)

    def skip(self, count: int) -> None:
        """Drop the next `count` bytes; called in a walk, which then ends at once, or to discard a frame."""
        self._skip += count

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes of the peer; each byte is copied at most once unless its frame is incomplete."""
        view = memoryview(data)
        position = 0
        while self._held and not self.is_halted and position < len(view):
            missing = self._missing()
            taken = min(missing, len(view) - position)
            self._held += view[position : position + taken]
            position += taken
            if taken == missing:
                # Either the size is known now, which the walk checks, or the frame is complete.
                self._walk_held()
        if self.is_halted:
            self._held += view[position:]
        elif position < len(view):
            self._walk_from(view, position)

    def go_on(self) -> None:
        """Read the bytes that came while reading was halted."""
        self.is_halted = False
        self._walk_held()

    def _walk_held(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            whole = memoryview(held)
            self._walk_from(whole, 0)

    def _walk_from(self, view: memoryview, position: int) -> None:
        """Read the whole frames from a position on, and keep the bytes behind them."""
        while True:
            if self._skip:
                dropped = min(self._skip, len(view) - position)
                self._skip -= dropped
                position += dropped
            position = self._walk(view, position)
            if not self._skip or position == len(view):
                break
        if position < len(view):
            self._held += view[position:]

    def _missing(self) -> int:
        if len(self._held) < _SIZE.size:
            return _SIZE.size - len(self._held)
        size: int = _SIZE.unpack_from(self._held)[0]
        return _SIZE.size + size - len(self._held)


def lower_limit(left: int, right: int) -> int:
    """The lower of two limits, where 0 is none."""
    return min(left, right) if left and right else left or right
