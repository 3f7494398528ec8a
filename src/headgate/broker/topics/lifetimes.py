"""How long copies live: by the settings of their subscription, and by what a message says itself, the lesser.

A copy that would be given out is looked at alone. What nobody receives is swept once a second, oldest copies first: as
messages lie in the order of their times, the sweep reads none of them, and knows only what the settings say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headgate.broker.stream import BrokerStream
from headgate.broker.timing import is_over
from headgate.broker.topics.sources import ReadCopy
from headgate.broker.topics.trouble import Trouble
from headgate.errors import HeadgateError, MessageError
from headgate.ledger import copy_number
from headgate.log import OffsetSpecification
from headgate.message import AmqpType, FieldReference, Message, Section

if TYPE_CHECKING:
    from headgate.broker.topics.dispatcher import Dispatcher

SWEEP_MS = 1_000

_TTL = FieldReference(Section.HEADER, position=2)
_WITHOUT_HEADER = tuple(bytes((0x00, 0x53, each)) for each in Section if each > Section.HEADER)
_SHORT_HEADER = bytes((0x00, 0x53, Section.HEADER, 0xC0))
_SIZE_AT = len(_SHORT_HEADER)
"""Where it says how many bytes the header has more."""


def outlived(copies: Iterable[ReadCopy], default_ms: int | None, now_ms: int) -> list[int]:
    """The copies whose lifetime is over. Cost: half a microsecond each."""
    gone = []
    for each in copies:
        # A time to live of 0 is none: who writes it means that.
        lifetime_ms = _said_ms(each.message) or default_ms
        if lifetime_ms and now_ms >= each.timestamp_ms + min(lifetime_ms, default_ms or lifetime_ms):
            gone.append(each.copy)
    return gone


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
