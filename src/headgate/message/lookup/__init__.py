"""One field or whole messages out of many encoded ones, without decoding any."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headgate import kernels
from headgate.errors import MessageError
from headgate.message.batch import EncodedMessages
from headgate.message.constructors import CONSTRUCTOR_WIDTHS
from headgate.message.fields import FieldReference, Section
from headgate.message.lookup.gather import MessageCollector
from headgate.message.message import Message

__all__ = ["MessageCollector", "field_bytes", "locate_bytes", "locate_each"]

_NONE = (0, -1)
_UNDECIDED = -2
_TEXT_CONSTRUCTORS = {0xA0: 1, 0xA1: 1, 0xA3: 1, 0xB0: 4, 0xB1: 4, 0xB3: 4}
_UUID_CONSTRUCTOR = 0x98


def locate_bytes(batch: EncodedMessages, field: FieldReference) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts (in `batch.data`) and lengths of a field's bytes, `(messages,)` each; length −1 = it has none.

    Only strings, symbols, binaries and uuids have bytes; a message that is not valid has no fields. In a JSON body only
    strings that stand there as they are (`Message.body_string`). Compiled where possible, else message by message with
    the same answers.
    """
    starts, lengths = locate_each(batch, [field])[0]
    return starts, lengths


def locate_each(batch: EncodedMessages, fields: Sequence[FieldReference]) -> NDArray[np.int64]:
    """The same for several fields, `(fields, 2, messages)`: of each field the starts, then the lengths."""
    count = len(batch.starts)
    found = np.full((len(fields), 2, count), _UNDECIDED, dtype=np.int64)
    kernel = kernels.load("headgate.message.lookup.kernel")
    if kernel is not None and count:
        starts = np.ascontiguousarray(batch.starts, dtype=np.int64)
        lengths = np.ascontiguousarray(batch.lengths, dtype=np.int64)
        address_of, out, step = kernels.address_of, kernels.address_of(found), 8 * count
        inputs = address_of(batch.data), address_of(starts), address_of(lengths), count
        for number, field in enumerate(fields):
            if field.section is Section.DATA:
                continue
            asked, out_starts = _asked(field), out + 2 * number * step
            kernel.find_field(*inputs, *asked.words, out_starts, out_starts + step)
    for field, (field_starts, field_lengths) in zip(fields, found, strict=True):
        for row in np.flatnonzero(field_lengths == _UNDECIDED).tolist():
            start, field_lengths[row] = _locate(batch.message(row), field)
            field_starts[row] = batch.starts[row] + start
    return found


def field_bytes(message: bytes, field: FieldReference) -> bytes | None:
    """The bytes of a field of one encoded message, as `locate_bytes` finds them; None if it has none."""
    start, length = _locate(message, field)
    return None if length < 0 else message[start : start + length]


class _Asked(NamedTuple):
    """A field as the kernel is asked for it: the words, and the arrays to which they point."""

    arrays: tuple[NDArray[np.int64], NDArray[np.uint8]]
    words: tuple[int, ...]


@functools.lru_cache(maxsize=256)
def _asked(field: FieldReference) -> _Asked:
    widths = np.array(CONSTRUCTOR_WIDTHS, dtype=np.int64)
    key = np.frombuffer(field.key or b"\0", dtype=np.uint8)
    position = -1 if field.position is None else field.position
    asked = int(field.section), position, kernels.address_of(key), len(field.key or b"")
    return _Asked((widths, key), (kernels.address_of(widths), *asked))


def _locate(data: bytes, field: FieldReference) -> tuple[int, int]:
    """Where a field's bytes are in one message, found as `Message.value` finds a field; none in the footer."""
    try:
        message = Message.decode(data)
    except MessageError:
        return _NONE
    if field.section is Section.DATA:
        return message.body_string(field.path) or _NONE
    position = message.field_position(field)
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
