"""Where an element of AMQP 1.0 ends: for the kernels of many packages, which are not compiled together for it."""

from __future__ import annotations

from headgate.kernels.compiler import helper
from headgate.kernels.memory import load_be_u32, load_i64, load_u8

_FAIL = -1
_WIDTH_SIZE8 = -1
_WIDTH_SIZE32 = -2
_WIDTH_DESCRIBED = -3
"""Entries of the table of widths of `headgate.message.lookup` that are not a fixed width; lower is invalid."""


@helper
def behind_element(position: int, stop: int, widths: int) -> int:
    """The address behind the element at `position`; −1 when it does not end within `stop` or is none."""
    pending = 1
    while pending > 0:
        if position >= stop:
            return _FAIL
        width: int = load_i64(widths + 8 * load_u8(position))
        position += 1
        if width == _WIDTH_DESCRIBED:
            pending += 1
            continue
        if width == _WIDTH_SIZE8:
            if position >= stop:
                return _FAIL
            width = 1 + load_u8(position)
        elif width == _WIDTH_SIZE32:
            if stop - position < 4:
                return _FAIL
            width = 4 + load_be_u32(position)
        elif width < 0:
            return _FAIL
        if width > stop - position:
            return _FAIL
        position += width
        pending -= 1
    return position
