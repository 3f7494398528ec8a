"""How long copies live: by the settings of their subscription, and by what a message says itself, the lesser.

A copy that would be given out is looked at alone. What nobody receives is swept once a second, oldest copies first: as
messages lie in the order of their times, the sweep reads none of them, and knows only what the settings say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.broker.stream import BrokerStream
from headgate.broker.timing import is_over
from headgate.broker.topics.copies import ReadCopies
from headgate.broker.topics.trouble import Trouble
from headgate.columns import FEW_ROWS
from headgate.errors import HeadgateError, MessageError
from headgate.ledger import copy_number
from headgate.log import OffsetSpecification
from headgate.log.format import windows
from headgate.message import AmqpType, EncodedMessages, FieldReference, Message, Section

if TYPE_CHECKING:
    from headgate.broker.topics.dispatcher import Dispatcher

SWEEP_MS = 1_000

_TTL = FieldReference(Section.HEADER, position=2)
_WITHOUT_HEADER = tuple(bytes((0x00, 0x53, each)) for each in Section if each > Section.HEADER)
_SHORT_HEADER = bytes((0x00, 0x53, Section.HEADER, 0xC0))
_SHORT = int.from_bytes(_SHORT_HEADER, "big")
_DESCRIBED = 0x0053
_SIZE_AT, _COUNT_AT, _DURABLE_AT, _PRIORITY_AT = 4, 5, 6, 7
"""Where a header of the short form says how many bytes and fields it has more, and where these begin."""
_TTL_FIELDS = 3
"""A header with fewer fields has no time to live."""
_FIRST_BYTES = np.dtype((np.void, _PRIORITY_AT + 3))
_NULL, _UBYTE = 0x40, 0x50
_FOREVER_MS = (1 << 63) - 1


def outlived(copies: ReadCopies, default_ms: int | None, now_ms: int) -> NDArray[np.bool_] | None:
    """The copies whose lifetime is over, `(copies,)`; None: none's is. Cost: half a microsecond for who says one."""
    messages = copies.messages
    # A time to live of 0 is none: who writes it means that.
    said_ms = {row: said for row in _saying(messages) if (said := _said_ms(messages.message(row)))}
    if not said_ms and not default_ms:
        return None
    lifetimes_ms = np.full(len(copies), default_ms or _FOREVER_MS, dtype=np.int64)
    for row, said in said_ms.items():
        lifetimes_ms[row] = min(said, lifetimes_ms[row])
    gone = now_ms - copies.timestamps_ms >= lifetimes_ms
    return gone if gone.any() else None


def _saying(messages: EncodedMessages) -> list[int]:
    """The rows that may say a time to live: few of those that do not are among them."""
    count = len(messages)
    if count <= FEW_ROWS:
        return list(range(count))
    first = windows(messages.data, _FIRST_BYTES)
    # Nothing shorter than that says anything.
    heads = first[np.minimum(messages.starts, len(first) - 1)].view(np.uint8).reshape(count, -1)
    begin = heads[:, :_SIZE_AT].copy().view(">u4")[:, 0]
    is_short = begin == _SHORT
    # A time to live lies behind durable, of one byte, and a priority, null or of two bytes.
    priority = heads[:, _PRIORITY_AT]
    behind = np.where(priority == _NULL, heads[:, _PRIORITY_AT + 1], heads[:, _PRIORITY_AT + 2])
    is_plain = (heads[:, _DURABLE_AT] - np.uint8(_NULL) <= 2) & ((priority == _NULL) | (priority == _UBYTE))
    is_none = (heads[:, _COUNT_AT] < _TTL_FIELDS) | (is_plain & (behind == _NULL))
    has_no_header = (begin >> 16 == _DESCRIBED) & ((begin >> 8 & 0xFF) > Section.HEADER)
    rows: list[int] = np.flatnonzero(~(has_no_header | (is_short & is_none))).tolist()
    return rows


def _said_ms(message: bytes) -> int:
    """The time to live that a message says in its header; 0: none."""
    if message.startswith(_SHORT_HEADER) and len(message) > _SIZE_AT:
        return _said_in_header(message[: _SIZE_AT + 1 + message[_SIZE_AT]])
    return 0 if message.startswith(_WITHOUT_HEADER) else _decoded_ms(message)


def _decoded_ms(message: bytes) -> int:
    try:
        found = Message.decode(message).value(_TTL)
    except MessageError:
        return 0
    return int(found.value) if found is not None and found.type is AmqpType.UINT else 0


_said_in_header = functools.lru_cache(maxsize=1024)(_decoded_ms)
"""Messages have few different headers."""


class Sweep:
    """Gives up the copies of one topic that nobody received in time; `touch` asks for a turn."""

    def __init__(
        self, stream: BrokerStream, dispatchers: Callable[[], Iterable[Dispatcher]], touch: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._dispatchers = dispatchers
        self._touch = touch
        self._looked_ms = -SWEEP_MS
        self._is_asked_for = False
        self._trouble = Trouble()

    def tick(self, now_ms: int) -> None:
        """Ask for a turn once a second, if there are copies that may be too old."""
        if is_over(self._looked_ms, SWEEP_MS, now_ms):
            self._looked_ms = now_ms
            self._is_asked_for = any(map(_may_be_outlived, self._dispatchers()))
            if self._is_asked_for:
                self._touch()

    def turn(self, now_ms: int) -> None:
        """Give up some of what is too old; asks for another turn if there may be more."""
        if not self._is_asked_for:
            return
        try:
            self._is_asked_for = self._run(now_ms)
        except HeadgateError as error:
            self._is_asked_for = False
            self._trouble.note(f"topic {self._stream.name!r}: old copies stay", error, now_ms)
        if self._is_asked_for:
            self._touch()

    def _run(self, now_ms: int) -> bool:
        stops: dict[int, int] = {}
        has_more = False
        for dispatcher in filter(_may_be_outlived, self._dispatchers()):
            lifetime_ms = dispatcher.settings().default_time_to_live_ms
            assert lifetime_ms is not None
            if lifetime_ms not in stops:
                stops[lifetime_ms] = first_not_before(self._stream, now_ms - lifetime_ms + 1)
            has_more |= dispatcher.outlive(copy_number(stops[lifetime_ms]))
        return has_more


def first_not_before(stream: BrokerStream, timestamp_ms: int) -> int:
    """The first offset of a stream that is as old as that, or younger. Raises LogError."""
    with stream.guarded():
        return stream.stream.attach(OffsetSpecification.timestamp(timestamp_ms), now_ms=0).offset


def _may_be_outlived(dispatcher: Dispatcher) -> bool:
    return dispatcher.settings().default_time_to_live_ms is not None and dispatcher.counts().active > 0
