"""A bounded read of a stream from some place on: the messages that pass, and where the next read goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.clock import Clock
from headgate.errors import LogError, OffsetOutOfRangeError
from headgate.log import OffsetSpecification, Stream, StreamSettings, load_settings
from headgate.scan import Cursor, ScanBatch, ScanCounters, ScanRequest, check_start
from headgate.server.browsing.rows import Row, message_row

PAGE_BYTES = 8 << 20
"""A page ends with the message that passes this size; the first one is always in it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one read: it ends after the first that is passed, at a look of some mebibytes."""

    rows: int
    seconds: float
    messages: int
    """How many messages are examined."""


@dataclass(slots=True)
class Page:
    """The messages of one read. `end_offset` is behind the last one that was looked at; `is_end`: there was no more.

    `error` is what stopped it at `end_offset`. `counters` may count beyond the last row, because chunks are read whole.
    """

    end_offset: int
    messages: list[Row] = field(default_factory=list)
    is_end: bool = False
    counters: ScanCounters = field(default_factory=ScanCounters)
    error: LogError | None = None
    size_bytes: int = 0


def browse(
    stream: Stream, request: ScanRequest, start: OffsetSpecification, budget: Budget, *, now_ms: int, clock: Clock
) -> Page:
    """Read from a place on. Raises ConfigError for a place behind the end, LogError where the read cannot begin."""
    deadline_s = clock.monotonic_s() + budget.seconds
    check_start(stream, start, now_ms=now_ms)
    # A writer may have declared more since the stream was opened.
    settings = load_settings(stream.path)
    with Cursor(stream, request, start=start, now_ms=now_ms) as cursor:
        page = Page(cursor.next_offset, counters=cursor.counters)
        while True:
            before = cursor.next_offset
            try:
                batch = cursor.read_some(now_ms)
            except OffsetOutOfRangeError as error:
                if cursor.next_offset > before:
                    # Retention deleted the oldest segment meanwhile: it goes on behind it.
                    continue
                page.error = error
                return page
            except LogError as error:
                page.end_offset, page.error = cursor.next_offset, error
                return page
            page.end_offset = cursor.next_offset
            is_full = batch is not None and _add(page, batch, settings, budget)
            if is_full or page.counters.messages_decided >= budget.messages or clock.monotonic_s() >= deadline_s:
                page.is_end = page.end_offset >= stream.next_offset()
                return page
            if cursor.at_end:
                page.is_end = True
                return page


def _add(page: Page, batch: ScanBatch, settings: StreamSettings | None, budget: Budget) -> bool:
    """Add the messages of a batch, as far as they fit; whether the page is full."""
    for number in range(len(batch)):
        encoded = batch.messages.message(number)
        offset = int(batch.offsets[number])
        if page.messages and page.size_bytes + len(encoded) > PAGE_BYTES:
            page.end_offset = offset
            return True
        page.size_bytes += len(encoded)
        page.messages.append(
            message_row(
                encoded,
                offset=offset,
                timestamp_ms=int(batch.timestamps_ms[number]),
                settings=settings,
            )
        )
        if len(page.messages) >= budget.rows:
            if number + 1 < len(batch):
                page.end_offset = int(batch.offsets[number + 1])
            return True
    return False


def counters_shown(counters: ScanCounters) -> dict[str, object]:
    """The counters of a read for people: what each stage examined, skipped and kept."""
    by_files = counters.messages_decided - counters.messages_evaluated
    skipped = counters.chunks_left_out
    return {
        "chunks_examined": counters.chunks_examined,
        "chunks_skipped": skipped,
        "bytes_skipped": counters.bytes_skipped,
        "messages_examined": counters.messages_decided,
        "messages_kept": counters.messages_matched,
        "stage_1": {
            "chunks_examined": counters.chunks_examined,
            "chunks_skipped": skipped,
            "chunks_skipped_by_derived_files": skipped - counters.chunks_skipped,
            "bytes_skipped": counters.bytes_skipped,
            "chunks_without_match": counters.chunks_without_match,
        },
        "stage_2": {
            "messages_examined": counters.messages_decided,
            "messages_decided_by_derived_files": by_files,
            "messages_kept": counters.messages_matched,
            "messages_malformed": counters.messages_malformed,
            "bytes_read": counters.bytes_read,
            "chunks_damaged": counters.chunks_corrupt,
        },
    }
