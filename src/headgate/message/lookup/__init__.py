"""One field or whole messages out of many encoded ones, without decoding any."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.errors import MessageError
from headgate.message.batch import EncodedMessages
from headgate.message.constructors import CONSTRUCTOR_WIDTHS
from headgate.message.fields import FieldReference, Section
from headgate.message.lookup.gather import MessageCollector
from headgate.message.message import Message

__all__ = ["MessageCollector", "locate_bytes"]

_NONE = (0, -1)
_UNDECIDED = -2
_TEXT_CONSTRUCTORS = {0xA0: 1, 0xA1: 1, 0xA3: 1, 0xB0: 4, 0xB1: 4, 0xB3: 4}
_UUID_CONSTRUCTOR = 0x98


def locate_bytes(batch: EncodedMessages, field: FieldReference) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts (in `batch.data`) and lengths of a field's bytes, `(messages,)` each; length −1 = it has none.

    Only strings, symbols, binaries and uuids have bytes; a message that is not valid has no fields. Compiled where
    possible, else message by message with the same answers.
    """
    starts = np.zeros(len(batch), dtype=np.int64)
    lengths = np.full(len(batch), -1, dtype=np.int64)
    rows = np.arange(len(batch))
    kernel = kernels.load("headgate.message.lookup.kernel")
    if kernel is not None and len(batch):
        key = np.frombuffer(field.key or b"\0", dtype=np.uint8)
        message_starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
        message_lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
        kernel.find_field(
            kernels.address_of(batch.data),
            kernels.address_of(message_starts),
            kernels.address_of(message_lengths),
            len(batch),
            kernels.address_of(_widths()),
            int(field.section),
            -1 if field.position is None else field.position,
            kernels.address_of(key),
            len(field.key or b""),
            kernels.address_of(starts),
            kernels.address_of(lengths),
        )
        rows = np.flatnonzero(lengths == _UNDECIDED)
    for row in rows:
        start, lengths[row] = _locate(batch.message(int(row)), field)
        starts[row] = batch.starts[row] + start
    return starts, lengths


@functools.cache
def _widths() -> NDArray[np.int64]:
    return np.array(CONSTRUCTOR_WIDTHS, dtype=np.int64)


def _locate(data: bytes, field: FieldReference) -> tuple[int, int]:
    """Where a field's bytes are in one message, found as `Message.value` finds a field; none in the footer."""
    try:
        position = Message.decode(data).field_position(field)
    except MessageError:
        return _NONE
    if position is None or field.section is Section.FOOTER:
        return _NONE
    constructor = data[position]
    if constructor == _UUID_CONSTRUCTOR:
        return position + 1, 16
    width = _TEXT_CONSTRUCTORS.get(constructor)
    if width is None:
        return _NONE
    start = position + 1 + width
    return start, int.from_bytes(data[position + 1 : start], "big")
