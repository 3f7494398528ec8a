"""`headgate tail`: the messages of a stream that pass both filters, on the terminal or as JSON lines. Starts no JVM."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
from cyclopts import Parameter, validators

from headgate.cli.messages import message_cells, message_json
from headgate.cli.options import (
    AsJson,
    Dialect,
    FilterValues,
    MatchUnfiltered,
    Start,
    StreamText,
    chosen,
    naming_option,
    places_of,
)
from headgate.cli.output import write_json, write_line, write_note
from headgate.cli.remote import DEFAULT_LOCATION, FOLLOW_ADVICE, Location, note_behind, note_deleted, open_cursor
from headgate.cli.tail_copies import CopyCursor, ServerCopyCursor, open_copies
from headgate.cli.units import counted, shown_count, shown_size
from headgate.clock import now_ms, shown_time
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.cli.remote import ServerCursor
    from headgate.log import OffsetSpecification, Stream
    from headgate.scan import Cursor, ScanBatch, ScanRequest

_POLL_S = 0.05


def tail(
    stream: StreamText,
    /,
    *,
    filter_text: Annotated[
        str | None, Parameter(name="--filter", help="Filter expression (stage 2).", allow_leading_hyphen=True)
    ] = None,
    dialect: Dialect = None,
    filter_values: FilterValues = None,
    match_unfiltered: MatchUnfiltered = False,
    subscription: Annotated[
        str | None,
        Parameter(
            help="The copies that this subscription of the topic has, settled or not, with their actions applied."
        ),
    ] = None,
    start: Start = "first",
    until: Annotated[
        str | None, Parameter(help="Where to stop, exclusive, in the same forms; by default what is there now.")
    ] = None,
    count: Annotated[
        int | None,
        Parameter(name=("-n", "--count"), help="Stop after so many messages.", validator=validators.Number(gte=1)),
    ] = None,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), negative=(), help="Wait for more at the end.")] = False,
    as_json: AsJson = False,
    typed: Annotated[bool, Parameter(negative=(), help="With --json: values with their AMQP types.")] = False,
    offsets: Annotated[bool, Parameter(negative=(), help="Write the offsets only, one per line.")] = False,
    as_table: Annotated[
        bool, Parameter(name="--table", negative=(), help="Write a table of messages for `filter test --messages`.")
    ] = False,
    skip_corrupt: Annotated[
        bool, Parameter(negative=(), help="Pass over chunks and segments that do not check.")
    ] = False,
    counters: Annotated[
        bool, Parameter(negative=(), help="At the end write what each stage examined, skipped and kept.")
    ] = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show the messages of a stream that pass the filters, in order.

    Chunks without a wanted filter value are skipped unread (stage 1); messages for which the filter is not true are
    left out (stage 2).
    """
    from headgate.derived import sources_of
    from headgate.evaluate import Filter
    from headgate.scan import OnCorrupt, ScanRequest

    if dialect is not None and filter_text is None:
        raise ConfigError("--dialect is the language of --filter, which is missing")
    if typed and not as_json:
        raise ConfigError("--typed has a meaning with --json only")
    forms = [name for name, asked in (("--offsets", offsets), ("--json", as_json), ("--table", as_table)) if asked]
    if len(forms) > 1:
        raise ConfigError(f"{' and '.join(forms)}: found together, expected one of them")
    now = now_ms()
    request = ScanRequest(
        filter=None if filter_text is None else Filter.parse(filter_text, chosen(dialect)),
        filter_values=tuple(value.encode() for value in filter_values or ()),
        match_unfiltered=match_unfiltered,
        now_ms=now,
        on_corrupt=OnCorrupt.SKIP if skip_corrupt else OnCorrupt.FAIL,
        sources=sources_of(),
    )
    begin, end = places_of(start, until, now_ms=now)
    if subscription is not None and (request.filter is not None or request.filter_values):
        raise ConfigError("--subscription: its rules choose the messages; found it beside a filter or filter value")
    write: _Write = _write_lines
    if offsets:
        write = _write_offsets
    elif as_table:
        write = _write_table
    elif as_json:
        write = partial(_write_json, typed=typed)
    with contextlib.ExitStack() as opened:
        cursor: _Cursor
        wait: Callable[[], None] = partial(time.sleep, _POLL_S)
        if not location.is_server:
            _prepare_kernels(with_filter=request.filter is not None)
            cursor = _open_folder(stream, location.root, request, start=begin, end=end, follow=follow)
            if subscription is not None:
                cursor = CopyCursor.over(cursor, stream, location.root, subscription)
        elif subscription is not None:
            cursor = open_copies(location, stream, subscription, start=begin, end=end, follow=follow)
        else:
            client = opened.enter_context(location.client())
            _prepare_kernels(with_filter=request.filter is not None and not client.is_headgate)
            cursor = open_cursor(client, stream, request, start=begin, end=end, follow=follow)
            wait = cursor.wait
        opened.callback(cursor.close)
        try:
            _copy(cursor, write, count=count, wait=wait if follow else None)
        finally:
            if counters or (sys.stderr.isatty() and not follow):
                # What they are about comes first, also where both go to one place.
                sys.stdout.flush()
                _write_counters(cursor, as_json=as_json, is_remote=location.is_server)
    return 0


def _prepare_kernels(*, with_filter: bool) -> None:
    """Begin to compile kernels that are not in the cache: until then the reference implementations are used."""
    from headgate import kernels

    wanted = kernels.FILTER if with_filter else kernels.READ
    if kernels.missing(wanted):
        kernels.load_in_background(wanted)


def _open_folder(
    stream: str,
    root: Path,
    request: ScanRequest,
    *,
    start: OffsetSpecification,
    end: OffsetSpecification | None,
    follow: bool,
) -> Cursor:
    from headgate.log import resolve_stream
    from headgate.scan import Cursor, check_start

    source = resolve_stream(stream, root)
    if follow:
        note_behind(start, source.next_offset())
    else:
        with naming_option("--from", advice=FOLLOW_ADVICE):
            check_start(source, start, now_ms=request.now_ms)
    note_deleted(start, source.first_offset())
    stop_offset = _stop_offset(source, end, now=request.now_ms, follow=follow)
    return Cursor(source, request, start=start, now_ms=request.now_ms, stop_offset=stop_offset)


def _stop_offset(stream: Stream, end: OffsetSpecification | None, *, now: int, follow: bool) -> int | None:
    """The offset after the last one wanted; None without end, when more is waited for."""
    from headgate.log import OffsetKind

    if end is None:
        return None if follow else stream.next_offset()
    if end.kind is OffsetKind.OFFSET:
        return end.value if follow else min(end.value, stream.next_offset())
    if follow:
        raise ConfigError(f"--until: found {end}, expected an offset, because --follow waits for what is not there yet")
    return stream.offset_of(end, now_ms=now)


def _copy(cursor: _Cursor, write: _Write, *, count: int | None, wait: Callable[[], None] | None) -> None:
    """Write the batches of a cursor; at the end `wait` for more, if given."""
    left = count
    while True:
        batch = cursor.read(now_ms())
        if batch is None:
            if wait is None or cursor.is_finished:
                return
            sys.stdout.flush()
            wait()
            continue
        rows = len(batch) if left is None else min(left, len(batch))
        write(batch, rows)
        if left is not None:
            left -= rows
            if left == 0:
                return


_Cursor: TypeAlias = "Cursor | ServerCursor | CopyCursor | ServerCopyCursor"

_Write: TypeAlias = "Callable[[ScanBatch, int], None]"
"""Writes the first messages of a batch."""


def _write_table(batch: ScanBatch, rows: int) -> None:
    for row in range(rows):
        write_json({"idx": int(batch.offsets[row]), "encoded_hex": batch.messages.message(row).hex()})


def _write_offsets(batch: ScanBatch, rows: int) -> None:
    if rows:
        write_line("\n".join(map(str, batch.offsets[:rows].tolist())))


def _write_json(batch: ScanBatch, rows: int, *, typed: bool) -> None:
    for row in range(rows):
        head = {"offset": int(batch.offsets[row]), "timestamp": shown_time(int(batch.timestamps_ms[row]))}
        write_json(head | message_json(batch.messages.message(row), typed=typed))


def _write_lines(batch: ScanBatch, rows: int) -> None:
    for row in range(rows):
        arrived = shown_time(int(batch.timestamps_ms[row]))
        write_line("\t".join((str(int(batch.offsets[row])), arrived, *message_cells(batch.messages.message(row)))))


def _write_counters(cursor: _Cursor, *, as_json: bool, is_remote: bool) -> None:
    counters = cursor.counters
    if as_json:
        write_note(msgspec.json.encode(counters.as_dict()).decode())
        return
    if isinstance(cursor, ServerCopyCursor):
        write_note(f"received: {counted(counters.messages_matched, 'message')} ({shown_size(counters.bytes_read)})")
        return
    if is_remote:
        write_note(
            f"received: {counted(counters.chunks_examined, 'chunk')} ({shown_size(counters.bytes_read)}), "
            f"{counted(counters.messages_evaluated, 'message')}; {shown_count(counters.messages_matched)} kept here"
        )
        return
    lines = [
        f"stage 1: {counted(counters.chunks_examined, 'chunk')} examined, "
        f"{shown_count(counters.chunks_skipped)} skipped unread ({shown_size(counters.bytes_skipped)}), "
        f"{shown_count(counters.chunks_without_match)} read without a match",
        f"stage 2: {counted(counters.messages_evaluated, 'message')} evaluated "
        f"({shown_size(counters.bytes_read)}), {shown_count(counters.messages_matched)} matched",
    ]
    if counters.messages_malformed:
        lines.append(f"no AMQP messages: {shown_count(counters.messages_malformed)} of those evaluated")
    if counters.bodies_unreadable:
        of_sampled = f"{shown_count(counters.bodies_unreadable)} of {shown_count(counters.bodies_sampled)} looked at"
        lines.append(f"bodies that are not JSON, or not of the schema: {of_sampled}; every path is unknown there")
    if counters.messages_decided_by_index:
        lines.append(
            f"match index: {counted(counters.chunks_skipped_by_index, 'chunk')} skipped unread, "
            f"{counted(counters.messages_decided_by_index, 'message')} decided"
        )
    if counters.messages_decided_by_columns:
        lines.append(
            f"column files: {counted(counters.messages_decided_by_columns, 'message')} decided "
            f"({shown_size(counters.column_bytes_read)} read), "
            f"{counted(counters.chunks_skipped_by_columns, 'chunk')} skipped unread"
        )
    if counters.messages_decided_by_lookup:
        lines.append(
            f"lookup files: {counted(counters.chunks_skipped_by_lookup, 'chunk')} skipped unread, "
            f"{counted(counters.messages_decided_by_lookup, 'message')} decided"
        )
    if counters.chunks_corrupt:
        lines.append(f"passed over because they do not check: {counted(counters.chunks_corrupt, 'chunk')}")
    write_note("\n".join(lines))
