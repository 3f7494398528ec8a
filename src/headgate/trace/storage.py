"""Where a message lies, and whether its publisher was told: segment, chunk, publisher sequences; or why it is gone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.clock import shown_time
from headgate.errors import MessageError
from headgate.log import (
    ChunkType,
    Segment,
    SegmentReader,
    Stream,
    TrackingKind,
    decode_records,
    given_up_offsets,
)
from headgate.message import AmqpType, Message, parse_field
from headgate.scan import MessageReader, written_filter_value
from headgate.trace.parts import Fate, Publisher, State, Step, StoredMessage
from headgate.trace.times import shown_duration

_ID = parse_field("properties.message_id")


@dataclass(frozen=True, slots=True)
class Located:
    """A message with its bytes and its place."""

    stored: StoredMessage
    encoded: bytes
    filter_value: bytes | None
    next_offset: int
    """The end of the stream: what lies below it is confirmed."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no message at an offset."""

    fate: Fate
    text: str


def locate(stream: Stream, offset: int) -> Located | Missing:
    """The message at an offset, or why there is none. Raises CorruptChunkError, LogError."""
    segments = stream.segments()
    first, behind = segments.first_offset, stream.next_offset()
    if offset >= behind:
        return Missing(Fate.NOT_STORED, f"not yet: the next message of stream {stream.name!r} gets offset {behind}")
    if offset < first:
        return Missing(Fate.DELETED, _deleted(stream, offset, first))
    segment = segments[segments.row_of(offset)]
    with segment.open() as reader:
        table = reader.chunks()
        row = int(np.searchsorted(table.chunk_id, offset, side="right")) - 1
        if table.type[row] != ChunkType.USER:
            return Missing(Fate.NO_MESSAGE, _no_message(stream, offset))
        header = reader.header(row)
        publishers = _publishers(reader, row)
        with MessageReader(stream) as messages:
            found = messages.read(np.array([offset], dtype=np.int64))
            encoded = found.messages.message(0)
        value = _filter_value(stream, encoded, header.chunk_id, header.next_chunk_id)
        stored = StoredMessage(
            offset=offset,
            timestamp_ms=int(table.timestamp_ms[row]),
            id=message_id(encoded),
            size_bytes=len(encoded),
            filter_value=None if value is None else value.decode(errors="backslashreplace"),
            segment=segment.first_chunk_id,
            file=_file(segment),
            position=int(table.position[row]),
            chunk=header.chunk_id,
            chunk_messages=header.num_records,
            place="local" if segment.remote is None else "remote",
            publishers=publishers,
        )
    return Located(stored, encoded, value, behind)


def message_id(encoded: bytes) -> str | None:
    """The message id as text; None for a message without one, and for bytes that are no message."""
    try:
        typed = Message.decode(encoded).value(_ID)
    except MessageError:
        return None
    if typed is None or typed.type is AmqpType.NULL:
        return None
    octets = typed.octets()
    if octets is None or typed.type is AmqpType.UUID:
        return str(typed.value)
    # Bytes that are not UTF-8 are shown by escapes: JSON cannot hold them.
    return octets.hex() if typed.type is AmqpType.BINARY else octets.decode(errors="backslashreplace")


def steps_of(stream: Stream, located: Located) -> tuple[Step, ...]:
    """Whether the message is stored, and confirmed."""
    stored = located.stored
    where = "object storage" if stored.place == "remote" else "the stream's folder"
    messages = f"{stored.chunk_messages} message{'s' * (stored.chunk_messages != 1)}"
    text = (
        f"at offset {stored.offset} of {stream.name!r} at {shown_time(stored.timestamp_ms)}, in segment "
        f"{stored.segment}, chunk {stored.chunk} ({messages}), in {where}"
    )
    named = ", ".join(f"{each.name!r} up to sequence {each.sequence}" for each in stored.publishers)
    by = f"; published by {named}" if named else ""
    if stream.is_foreign:
        confirmed = Step(
            "confirmed",
            State.UNKNOWN,
            "RabbitMQ confirms a message when most of its replicas have it, which this folder does not say" + by,
        )
    else:
        end = located.next_offset
        confirmed = Step("confirmed", State.YES, f"to its publisher: the index is complete up to offset {end}{by}")
    return Step("stored", State.YES, text), confirmed


def _file(segment: Segment) -> str:
    return segment.place if segment.remote is not None else str(segment.segment_path)


def _publishers(reader: SegmentReader, row: int) -> tuple[Publisher, ...]:
    """The named publishers of a chunk, from its trailer."""
    header = reader.header(row)
    if not header.trailer_length:
        return ()
    end = int(reader.chunks().position[row]) + header.size_bytes
    start = end - header.trailer_length
    trailer = reader.read(start, end)[: header.trailer_length].tobytes()
    records = decode_records(trailer, in_snapshot=False, path=reader.place, position=start)
    return tuple(
        Publisher(record.reference.decode(errors="backslashreplace"), record.value)
        for record in records
        if record.kind is TrackingKind.SEQUENCE
    )


def _filter_value(stream: Stream, encoded: bytes, chunk_id: int, next_chunk_id: int) -> bytes | None:
    try:
        return written_filter_value(stream.settings, Message.decode(encoded), chunk_id, next_chunk_id)
    except MessageError:
        return None


def _deleted(stream: Stream, offset: int, first: int) -> str:
    begin = f"stream {stream.name!r} begins at offset {first}"
    if stream.settings is None:
        return f"passed over by RabbitMQ's retention: {begin}"
    arguments = stream.settings.arguments
    if offset < arguments.initial_offset:
        return f"never stored: the stream was created with the first offset {arguments.initial_offset}"
    limits = []
    if arguments.max_age_ms is not None:
        limits.append(f"max-age {shown_duration(arguments.max_age_ms)}")
    if arguments.max_length_bytes is not None:
        limits.append(f"max-length-bytes {arguments.max_length_bytes}")
    if arguments.drops_settled:
        limits.append("drop-settled, which deletes what no subscription needs any more")
    by = " and ".join(limits) if limits else "a limit that is not set any more"
    return f"passed over by retention ({by}): {begin}, and the place of offset {offset} is gone"


def _no_message(stream: Stream, offset: int) -> str:
    if any(start <= offset < stop for start, stop in given_up_offsets(stream.path)):
        return f"no message: offset {offset} was damaged, and given up by `headgate stream repair --skip-damaged`"
    return f"no message: offset {offset} holds bookkeeping, stored offsets or publisher sequences"
