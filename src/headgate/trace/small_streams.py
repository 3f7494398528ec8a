"""Messages beside a stream: dead letters, deferred copies and scheduled messages, and forwarded copies in others.

Each has a note of where it comes from, by which it is found.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.errors import LogError, MessageError
from headgate.evaluate import Filter
from headgate.ledger import IN_SESSION, TracedCopies, TraceEvent, copy_number, trace_copies
from headgate.log import OffsetSpecification, Stream
from headgate.message import FieldReference, Message, Section
from headgate.scan import Cursor, MessageReader, ScanRequest
from headgate.topic import DESCRIPTION_PROPERTY, FIRST_NUMBER_ANNOTATION, QUEUE_VIEW, REASON_PROPERTY

COPY_FILTER = "m.[x-headgate-copy] = {number}"
_MOST_BATCHES = 64
"""Limit: batches of a stream that are searched for a forwarded copy."""


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message beside a stream, with what its own ledger tells of it."""

    stream: Stream
    offset: int
    encoded: bytes
    traced: TracedCopies

    @property
    def copy(self) -> int:
        """Its number in its own ledger."""
        return copy_number(self.offset)

    @property
    def events(self) -> list[TraceEvent]:
        """What its ledger tells of it."""
        return self.traced.events.get(self.copy, [])

    @property
    def is_settled(self) -> bool:
        """Whether it is settled there."""
        view, copy = self.traced.view, self.copy
        return view is not None and copy in view.seen and not len(view.rows().rows_between(copy, copy + 1))

    @property
    def claimed_until_ms(self) -> int | None:
        """When its claim ends; 0 by the lock of a session, None while nobody has it."""
        view = self.traced.view
        if view is None or view.table is None:
            return None
        rows = view.table.rows_between(self.copy, self.copy + 1)
        if not len(rows) or not rows.claims[0]:
            return None
        return 0 if rows.untils[0] == IN_SESSION else int(rows.untils[0])

    @property
    def reason(self) -> tuple[str | None, str | None]:
        """Reason and description of a dead letter."""
        try:
            message = Message.decode(self.encoded)
        except MessageError:
            return None, None
        found = []
        for name in (REASON_PROPERTY, DESCRIPTION_PROPERTY):
            typed = message.value(FieldReference(Section.APPLICATION_PROPERTIES, key=name.encode()))
            found.append(None if typed is None else typed.text())
        return found[0], found[1]


def find_copy(folder: Path, copy: int, *, now_ms: int) -> FoundMessage | None:
    """The newest message with the note of a copy in the small stream of a folder; None if it is not there any more."""
    stream = Stream.find(folder)
    if stream is None:
        return None
    found: tuple[int, bytes] | None = None
    request = ScanRequest(filter=Filter.parse(COPY_FILTER.format(number=copy)), now_ms=now_ms)
    with contextlib.suppress(LogError), Cursor(stream, request, start=OffsetSpecification.first(), now_ms=0) as cursor:
        while (batch := cursor.read(now_ms)) is not None:
            found = int(batch.offsets[-1]), batch.messages.message(len(batch) - 1)
    if found is None:
        return None
    return _traced(stream, found[0], found[1], now_ms)


def message_at(stream: Stream, offset: int, *, now_ms: int) -> FoundMessage:
    """A message of a small stream by its offset. Raises LogError."""
    with MessageReader(stream) as reader:
        encoded = reader.read(np.array([offset], dtype=np.int64)).messages.message(0)
    return _traced(stream, offset, encoded, now_ms)


def _traced(stream: Stream, offset: int, encoded: bytes, now_ms: int) -> FoundMessage:
    traced = trace_copies(stream, {QUEUE_VIEW: [copy_number(offset)]}, now_ms=now_ms)
    return FoundMessage(stream, offset, encoded, traced[QUEUE_VIEW])


def find_forwarded(stream: Stream, copy: bytes, number: int, *, since_ms: int, now_ms: int) -> list[int]:
    """The offsets at which a forwarded copy may lie in its target; none if it is not found soon.

    Its first sequence number is noted there, and not where it counts: copies of other topics, and of other
    subscriptions of this one, have the same. So the copy's contents are compared, which forwarding keeps.
    """
    wanted = _contents(copy)
    noted = _noted(stream, f"m.[{FIRST_NUMBER_ANNOTATION}] = {number}", since_ms=since_ms, now_ms=now_ms)
    return [offset for offset, encoded in noted if _contents(encoded) == wanted]


def find_noted(stream: Stream, text: str, *, since_ms: int, now_ms: int) -> int | None:
    """The first offset from a time on whose message a filter selects; None if it is not found soon."""
    noted = _noted(stream, text, since_ms=since_ms, now_ms=now_ms)
    return next((offset for offset, _ in noted), None)


def _noted(stream: Stream, text: str, *, since_ms: int, now_ms: int) -> Iterator[tuple[int, bytes]]:
    request = ScanRequest(filter=Filter.parse(text), now_ms=now_ms)
    start = OffsetSpecification.timestamp(since_ms)
    with contextlib.suppress(LogError), Cursor(stream, request, start=start, now_ms=now_ms) as cursor:
        for _ in range(_MOST_BATCHES):
            batch = cursor.read(now_ms)
            if batch is None:
                return
            for row, offset in enumerate(batch.offsets.tolist()):
                yield offset, batch.messages.message(row)


def _contents(encoded: bytes) -> object:
    """What no move changes of a message: properties, application properties and body."""
    try:
        message = Message.decode(encoded)
    except MessageError:
        # Forwarding makes the body of a message of it.
        message = Message(encoded)
    return message.properties, message.application_properties, message.body
