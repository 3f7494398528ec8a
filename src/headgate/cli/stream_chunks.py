"""`headgate stream dump`, `verify` and `repair`: a stream chunk by chunk, on any folder or as a server delivers it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headgate.cli.options import AsJson, StreamText
from headgate.cli.output import write_json, write_line, write_note, write_table
from headgate.cli.remote import DEFAULT_LOCATION, Location
from headgate.cli.units import counted, shown_count, shown_size
from headgate.clock import now_ms, shown_time
from headgate.errors import ConfigError, LogError

if TYPE_CHECKING:
    from headgate.client import Client, DeliveredChunk
    from headgate.log import ChunkDump, Damage, GivenUp, Repaired, Stream
    from headgate.log.format import ChunkHeader

_DUMP_COLUMNS = (
    "segment",
    "position",
    "chunk_id",
    "type",
    "time",
    "epoch",
    "entries",
    "records",
    "data_bytes",
    "trailer_bytes",
    "bloom_bytes",
    "bloom_fill",
    "crc",
    "state",
)


def dump(
    stream: StreamText,
    /,
    *,
    crc: Annotated[bool, Parameter(help="Check the checksum of each chunk, which reads all data.")] = True,
    as_json: AsJson = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Show every chunk header as it is on disk, with the fill of its Bloom filter and the state of its checksum.

    Works on any folder. Of a server's stream: the header of every chunk that it delivers, which are those with
    messages; where they lie and their Bloom filters are not known then. Damage is shown in place; exit status 1 if
    there was any.
    """
    damaged = False

    def rows(chunks: Iterator[ChunkDump | DeliveredChunk | Damage]) -> Iterator[tuple[object, ...]]:
        from headgate.log import CrcState, Damage

        nonlocal damaged
        for found in chunks:
            if isinstance(found, Damage):
                damaged = True
                write_note(f"damage: {found}")
                continue
            damaged |= found.crc is CrcState.BAD or _is_torn(found)
            yield _dump_row(found)

    with contextlib.ExitStack() as opened:
        shown = rows(_chunks_of(stream, location, opened, check_crc=crc))
        if as_json:
            for row in shown:
                write_json(dict(zip(_DUMP_COLUMNS, row, strict=True)))
        else:
            write_table(_DUMP_COLUMNS, shown)
    return 1 if damaged else 0


def _chunks_of(
    stream: str, location: Location, opened: contextlib.ExitStack, *, check_crc: bool
) -> Iterator[ChunkDump | DeliveredChunk | Damage]:
    """The chunks of a stream in either place; `opened` gets the resources to close afterwards."""
    if not location.is_server:
        from headgate.log import dump_chunks, resolve_stream

        return dump_chunks(resolve_stream(stream, location.root), check_crc=check_crc)
    from headgate.client import delivered_chunks, extent

    client = opened.enter_context(location.client())
    chunks = delivered_chunks(client, stream, extent(client, stream), check_crc=check_crc)
    opened.callback(chunks.close)
    return chunks


def _is_torn(chunk: ChunkDump | DeliveredChunk) -> bool:
    from headgate.log import ChunkDump

    return isinstance(chunk, ChunkDump) and chunk.is_torn and chunk.in_index


def _dump_row(chunk: ChunkDump | DeliveredChunk) -> tuple[object, ...]:
    from headgate.log import ChunkDump, ChunkType

    header = chunk.header
    file, position, bloom_fill, state = None, None, None, "delivered"
    if isinstance(chunk, ChunkDump):
        file, position = chunk.path.name, chunk.position
        bloom_fill = round(chunk.bloom_fill, 3) if header.bloom_length else None
        state = "torn" if chunk.is_torn else "indexed" if chunk.in_index else "not indexed"
    return (
        file,
        position,
        header.chunk_id,
        ChunkType(header.chunk_type).name.lower(),
        shown_time(header.timestamp_ms),
        header.epoch,
        header.num_entries,
        header.num_records,
        header.data_length,
        header.trailer_length,
        header.bloom_length,
        bloom_fill,
        chunk.crc.value,
        state,
    )


def verify(stream: StreamText, /, *, as_json: AsJson = False, location: Location = DEFAULT_LOCATION) -> int:
    """Check everything in a stream: checksums, index, entries, sub-batches, offsets without gaps, missing files.

    Bloom filters are checked where the segment is sealed, and where the stream declares its filter source.

    Of a server's stream, which may be a RabbitMQ's: what it delivers up to the message that is the last at the start,
    and that is said. Prints all that is wrong; exit status 1 if anything is. With --json, one object says what was
    checked and what is wrong.
    """
    if location.is_server:
        with location.client() as client:
            return _verify_delivered(client, stream, as_json=as_json)
    from headgate.log import Damage, streams_beside, verify_stream
    from headgate.scan import declared_values

    checked = _Checked(stream, as_json)
    resolved = _opened(stream, location)
    if isinstance(resolved, Damage):
        checked.damaged(resolved)
        return checked.end()
    filter_values = None if resolved.settings is None else declared_values(resolved.settings)
    for found in verify_stream(resolved, filter_values=filter_values):
        if isinstance(found, Damage):
            checked.damaged(found)
        elif found.in_index:
            checked.add(found.header, found.header.size_bytes)
    try:
        beside = streams_beside(resolved)
    except LogError as error:
        checked.damaged(Damage(error.path_text, error.position, error.reason))
        beside = []
    for each in beside:
        for found in verify_stream(each):
            if isinstance(found, Damage):
                checked.damaged(found)
    return checked.end()


def repair(
    stream: StreamText,
    /,
    *,
    cut: Annotated[bool, Parameter(help="Give up what lies behind a damaged chunk of the last segment.")] = False,
    skip_damaged: Annotated[
        bool, Parameter(negative=(), help="Give up what is damaged, and only that: what lies behind can be read again.")
    ] = False,
    as_json: AsJson = False,
    location: Location = DEFAULT_LOCATION,
) -> int:
    """Make index files that are damaged or missing again from their segments, and the seals of segments.

    So are the small streams beside it: ledgers, dead letters, and others. Nobody may have them open meanwhile. Bytes of
    a segment cannot be made again: those that are damaged are named and left as they are, with the offsets that
    --skip-damaged would give up. With it they are moved to the folder `damaged` of the stream, their offsets stay
    empty, and no message gets another offset. Exit status 1 if damage is left. With --json, one object says what was
    repaired, given up, would be given up, and is damaged still.
    """
    if cut and skip_damaged:
        raise ConfigError("--cut and --skip-damaged: give one of them; --skip-damaged gives up less")
    if location.is_server:
        raise ConfigError(
            "--server: files are repaired where they lie; run `headgate stream repair` on the host of the server, with "
            "--root or the folder of the stream"
        )
    from headgate.log import Damage, GivenUp, Offer, repair_stream

    repaired: list[dict[str, object]] = []
    given_up: list[dict[str, object]] = []
    offered: list[dict[str, object]] = []
    damages: list[dict[str, object]] = []
    resolved = _opened(stream, location)
    repairs: Iterable[Repaired] = (
        [resolved]
        if isinstance(resolved, Damage)
        else repair_stream(resolved, now_ms=now_ms(), cut=cut, skip_damaged=skip_damaged)
    )
    for found in repairs:
        match found:
            case Damage():
                what = "damaged"
                damages.append(_described(found))
            case GivenUp():
                what = "given up"
                given_up.append(_lost(found))
            case Offer():
                what = "--skip-damaged would give up"
                offered.append(_lost(found.given_up))
            case _:
                what = "repaired"
                repaired.append({"path": str(found.path), "change": found.change})
        if not as_json:
            write_line(f"{what}: {found}")
    if as_json:
        told = {"repaired": repaired, "given_up": given_up, "would_be_given_up": offered, "damaged": damages}
        write_json({"stream": stream, **told})
    if given_up and not isinstance(resolved, Damage):
        write_note(f"the damaged bytes are kept in {resolved.path / 'damaged'}, or beside the small stream named above")
    write_note(f"{counted(len(repaired), 'file')} repaired, {counted(len(damages), 'damaged place')} left")
    return 1 if damages else 0


def _lost(found: GivenUp) -> dict[str, object]:
    return {
        "path": str(found.path),
        "position": found.position,
        "size_bytes": found.size_bytes,
        "first_offset": found.first_offset,
        "next_offset": found.next_offset,
        "holds": found.holds,
        "exact": found.is_exact,
        "reason": found.reason,
    }


def _opened(stream: str, location: Location) -> Stream | Damage:
    """A stream of this machine, or the damage of its settings."""
    from headgate.broker import is_damage
    from headgate.log import Damage, resolve_stream

    try:
        return resolve_stream(stream, location.root)
    except LogError as error:
        if not is_damage(error):
            raise
        return Damage(error.path_text, error.position, error.reason)


def _described(found: Damage) -> dict[str, object]:
    return {"path": str(found.path_text), "position": found.position, "reason": found.reason}


def _verify_delivered(client: Client, stream: str, *, as_json: bool) -> int:
    from headgate.client import extent, verify_delivered
    from headgate.log import Damage

    checked = _Checked(stream, as_json)
    within = extent(client, stream)
    for found in verify_delivered(client, stream, within):
        if isinstance(found, Damage):
            checked.damaged(found)
        else:
            checked.add(found.header, found.size_bytes)
    missing = max(0, within.stop - within.start - checked.records)
    status = checked.end({"offsets_not_delivered": missing})
    write_note(
        "not checked, because a server does not deliver them: index files, Bloom filters, trailers, chunks without "
        "messages"
    )
    if missing:
        write_note(
            f"not delivered: {counted(missing, 'offset')} of {shown_count(within.stop - within.start)}; chunks without "
            "messages take one each"
        )
    return status


class _Checked:
    """The checked parts, and the damage found."""

    def __init__(self, stream: str, as_json: bool) -> None:
        self._stream = stream
        self._as_json = as_json
        self._chunks = self._size_bytes = 0
        self._damages: list[dict[str, object]] = []
        self.records = 0

    def add(self, header: ChunkHeader, size_bytes: int) -> None:
        self._chunks += 1
        self.records += header.num_records
        self._size_bytes += size_bytes

    def damaged(self, found: Damage) -> None:
        """Write a damage; with JSON at the end."""
        self._damages.append(_described(found))
        if not self._as_json:
            write_line(str(found))

    def end(self, more: dict[str, object] | None = None) -> int:
        """Write the sum, in JSON with `more`; gives the exit status."""
        if self._as_json:
            checked = {"chunks": self._chunks, "records": self.records, "size_bytes": self._size_bytes}
            write_json({"stream": self._stream, "checked": checked, "damaged": self._damages, **(more or {})})
        write_note(
            f"{counted(self._chunks, 'chunk')}, {counted(self.records, 'record')}, {shown_size(self._size_bytes)} "
            "checked: " + (counted(len(self._damages), "damaged place") if self._damages else "all is well")
        )
        return 1 if self._damages else 0
