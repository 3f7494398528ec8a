"""Finding the message: by its offset, by its id, or by a filter; newest messages first, for a bounded time.

Lookup files, column files and the match index narrow the read, as for every reader. Ids of type uuid, and binary ones
in hexadecimal digits as answers show them, are compared by their bytes, which no filter can do: they are looked for
where the text has the form of one, and no other id fits.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headgate.clock import Clock, shown_time
from headgate.derived import sources_of
from headgate.errors import ConfigError, OffsetOutOfRangeError, PreconditionFailedError, ResourceNotFoundError
from headgate.evaluate import Filter
from headgate.language import DEFAULT_DIALECT
from headgate.log import Stream
from headgate.message import AmqpType, Message, parse_field
from headgate.message.lookup import locate_bytes
from headgate.scan import OffsetRange, ScanBatch, ScanCounters, ScanRequest, plan, read_range
from headgate.trace.parts import Search

MOST_LISTED = 20
"""Limit: messages that the error for an ambiguous question lists."""

MOST_ID_CHARACTERS = 4_000
"""Limit: characters of an id, a quote counts twice; the filter that finds it has one, too."""

RANGE_BYTES = 16 << 20
"""The time is checked after each range of about this size."""

Progress = Callable[[int, int], None]
"""Is called with the number of messages searched so far, and of all."""

_SEGMENTS_AT_ONCE = 4
_ID = parse_field("properties.message_id")
_NUMBER = re.compile(r"[0-9]{1,20}")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_HEXADECIMAL = re.compile(r"(?:[0-9a-fA-F]{2})+")
_LARGEST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Selector:
    """Which message is meant: exactly one of `id`, `offset` and `where`, a filter in `language`."""

    id: str | None = None
    offset: int | None = None
    where: str | None = None
    language: str | None = None

    def check(self) -> None:
        """Raise ConfigError unless exactly one is given, and for a long id; FilterError for a wrong filter."""
        given = [name for name in ("id", "offset", "where") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none of them"
            raise ConfigError(f"which message: {found}; expected exactly one of id, offset and where")
        if self.offset is not None and self.offset < 0:
            raise ConfigError(f"offset: found {self.offset}, expected 0 or more")
        if self.language is not None and self.where is None:
            raise ConfigError("the language of `where` is given without `where`")
        self.filter()

    def filter(self) -> Filter | None:
        """The filter that finds the message; None for an offset."""
        if self.where is not None:
            return Filter.parse(self.where, self.language or DEFAULT_DIALECT)
        if self.id is None:
            return None
        quoted = self.id.replace("'", "''")
        if len(quoted) > MOST_ID_CHARACTERS:
            raise ConfigError(
                f"id: found {len(self.id)} characters, {MOST_ID_CHARACTERS} can be looked for; give the offset"
            )
        text = f"properties.message_id = '{quoted}'"
        if _NUMBER.fullmatch(self.id) and int(self.id) <= _LARGEST:
            text += f" OR properties.message_id = {int(self.id)}"
        return Filter.parse(text, DEFAULT_DIALECT)

    @property
    def shown(self) -> tuple[str, str]:
        """What the message is looked for by, and the text of it."""
        if self.id is not None:
            return "id", self.id
        return ("where", self.where) if self.where is not None else ("offset", str(self.offset))


@dataclass(frozen=True, slots=True)
class Sought:
    """The place of the message that was found."""

    stream: Stream
    offset: int
    search: Search


@dataclass(slots=True)
class _Matches:
    """The messages found in some streams, newest first, at most one more than are listed."""

    clock: Clock
    deadline_s: float
    progress: Progress | None
    found: list[tuple[Stream, int, int]] = field(default_factory=list)
    counters: ScanCounters = field(default_factory=ScanCounters)
    searched: int = 0
    total: int = 0
    is_complete: bool = True

    def look(self, streams: Sequence[Stream], request: ScanRequest, keep: _Keep | None = None) -> None:
        """Search all messages of some streams, until the time is over or enough was found."""
        self.total = sum(stream.next_offset() - stream.first_offset() for stream in streams)
        self.searched = 0
        for stream in streams:
            for batch in self._batches(stream, request):
                rows = np.arange(len(batch)) if keep is None else keep(batch)
                for row in reversed(rows.tolist()):
                    self.found.append((stream, int(batch.offsets[row]), int(batch.timestamps_ms[row])))
                if len(self.found) > MOST_LISTED:
                    return

    def _batches(self, stream: Stream, request: ScanRequest) -> Iterator[ScanBatch]:
        """The matches of each part of the stream, the newest part first."""
        segments, behind = stream.segments(), stream.next_offset()
        for stop in range(len(segments), 0, -_SEGMENTS_AT_ONCE):
            if self._is_over():
                return
            first = segments[max(0, stop - _SEGMENTS_AT_ONCE)].first_chunk_id
            # Retention may delete the oldest segments meanwhile.
            with contextlib.suppress(OffsetOutOfRangeError, FileNotFoundError):
                planned = plan(stream, request, OffsetRange(first, behind), range_bytes=RANGE_BYTES)
                self.counters.add(planned.counters)
                for chunks in reversed(planned.ranges):
                    if self._is_over():
                        return
                    yield from reversed(list(read_range(chunks, request, self.counters)))
            self.searched += behind - first
            if self.progress is not None:
                self.progress(self.searched, self.total)
            behind = first

    def _is_over(self) -> bool:
        if self.clock.monotonic_s() >= self.deadline_s:
            self.is_complete = False
        return not self.is_complete

    @property
    def using(self) -> tuple[str, ...]:
        """The kinds of derived files that spared reading."""
        spared = {
            "lookup": self.counters.messages_decided_by_lookup + self.counters.chunks_skipped_by_lookup,
            "column files": self.counters.messages_decided_by_columns + self.counters.chunks_skipped_by_columns,
            "match index": self.counters.messages_decided_by_index + self.counters.chunks_skipped_by_index,
            "Bloom filters": self.counters.chunks_skipped,
        }
        return tuple(name for name, count in spared.items() if count)


_Keep = Callable[[ScanBatch], NDArray[np.intp]]


def find(
    streams: Sequence[Stream],
    selector: Selector,
    *,
    now_ms: int,
    clock: Clock,
    budget_s: float,
    progress: Progress | None = None,
) -> Sought | None:
    """The message that a question means, in one of the streams; None if there is none.

    An offset is not looked for: with several streams it is refused. Raises PreconditionFailedError that lists several
    matching messages, ConfigError, FilterError, LogError.
    """
    by, text = selector.shown
    if selector.offset is not None:
        if len(streams) > 1:
            names = ", ".join(repr(stream.name) for stream in streams[:MOST_LISTED])
            raise ConfigError(f"offset: the topic has {len(streams)} queues; name one of them: {names}")
        return Sought(streams[0], selector.offset, Search(by, text))
    matches = _Matches(clock, clock.monotonic_s() + budget_s, progress)
    request = ScanRequest(filter=selector.filter(), now_ms=now_ms, sources=sources_of())
    matches.look(streams, request)
    octets = None if selector.id is None else _octets(selector.id)
    if not matches.found and matches.is_complete and octets is not None:
        matches.look(streams, ScanRequest(now_ms=now_ms), _having(octets))
    search = Search(
        by,
        text,
        using=matches.using,
        messages_examined=matches.counters.messages_evaluated,
        messages_searched=matches.searched,
        is_complete=matches.is_complete,
    )
    if len(matches.found) > 1:
        raise _several(selector, matches)
    if not matches.found:
        if matches.is_complete:
            return None
        raise not_found(streams, selector, search)
    stream, offset, _ = matches.found[0]
    return Sought(stream, offset, search)


def not_found(streams: Sequence[Stream], selector: Selector, search: Search | None = None) -> ResourceNotFoundError:
    """The error for a message that is not there, which says what was searched."""
    by, text = selector.shown
    what = f"the id {text!r}" if by == "id" else f"`{text}`"
    if search is not None and not search.is_complete:
        reason = (
            f"no message with {what} among the newest {search.messages_searched}; the time was over before the others "
            "were searched: give it more, or declare a lookup field (headgate lookup declare)"
        )
    else:
        total = sum(stream.next_offset() - stream.first_offset() for stream in streams)
        first = min(stream.first_offset() for stream in streams)
        reason = f"no message with {what}; all offsets that are kept were searched, {total} from {first} on"
    return ResourceNotFoundError(reason, subject=", ".join(stream.name for stream in streams[:MOST_LISTED]))


def _octets(text: str) -> bytes | None:
    """The bytes of the uuid, or of the binary id, that a text shows; None for other texts."""
    if _UUID.fullmatch(text):
        return uuid.UUID(text).bytes
    return bytes.fromhex(text) if _HEXADECIMAL.fullmatch(text) else None


def _having(octets: bytes) -> _Keep:
    """Which messages of a batch have an id of type uuid or binary with these bytes."""
    wanted = np.frombuffer(octets, dtype=np.uint8)

    def keep(batch: ScanBatch) -> NDArray[np.intp]:
        starts, lengths = locate_bytes(batch.messages, _ID)
        rows = np.flatnonzero(lengths == len(wanted))
        places = starts[rows][:, None] + np.arange(len(wanted))
        equal = rows[(batch.messages.data[places] == wanted).all(axis=1)]
        # A text of the same bytes is another id.
        found = [row for row in equal.tolist() if _is_bytes(batch.messages.message(row))]
        return np.array(found, dtype=np.intp)

    return keep


def _is_bytes(encoded: bytes) -> bool:
    typed = Message.decode(encoded).value(_ID)
    return typed is not None and typed.type in (AmqpType.UUID, AmqpType.BINARY)


def _several(selector: Selector, matches: _Matches) -> PreconditionFailedError:
    by, text = selector.shown
    what = f"the id {text!r}" if by == "id" else f"`{text}`"
    is_more = len(matches.found) > MOST_LISTED or not matches.is_complete
    listed = matches.found[:MOST_LISTED]
    several = len({stream.name for stream, _, _ in matches.found}) > 1
    shown = ", ".join(
        f"{f'{stream.name} ' if several else ''}{offset} ({shown_time(timestamp_ms)})"
        for stream, offset, timestamp_ms in listed
    )
    count = f"at least {len(matches.found)}" if is_more else str(len(matches.found))
    return PreconditionFailedError(
        f"{count} messages have {what}, the newest first: {shown}; give the offset of one",
        subject=listed[0][0].name,
    )
