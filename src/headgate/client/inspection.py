"""Inspection of a stream on a server for `stream dump`, `verify` and `info`, as far as a client sees it.

A server delivers the header and the data part of chunks with messages, and nothing else: no index, no Bloom filter, no
trailer, no chunk of tracking records. Nothing here needs a Headgate. Generators that hold the chunks of one credit.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from headgate.client.client import Client
from headgate.client.subscription import DEFAULT_CREDIT, SubscriptionOptions
from headgate.errors import ConnectionLostError, CorruptChunkError
from headgate.log import CrcState, Damage, OffsetSpecification, check_data
from headgate.log.format import CHUNK_HEADER_BYTES, ChunkHeader
from headgate.scan import OffsetRange


@dataclass(slots=True)
class DeliveredChunk:
    """One chunk as it was delivered; `data` is its data part."""

    header: ChunkHeader
    data: bytes
    crc: CrcState

    @property
    def size_bytes(self) -> int:
        """Bytes that were delivered."""
        return CHUNK_HEADER_BYTES + len(self.data)


def extent(client: Client, stream: str) -> OffsetRange:
    """The offsets that a stream has now. Raises BrokerError, ConnectionLostError."""
    return OffsetRange(
        client.resolve_offset(stream, OffsetSpecification.first()),
        client.resolve_offset(stream, OffsetSpecification.next()),
    )


def delivered_chunks(
    client: Client, stream: str, within: OffsetRange, *, check_crc: bool
) -> Generator[DeliveredChunk | Damage, None, None]:
    """Every chunk with messages that begins in a range of offsets; a Damage for bytes that are not a chunk.

    If the server does not deliver existing chunks, the last item is a Damage that says so. Raises BrokerError,
    ConnectionLostError if the server is gone.
    """
    yield from _chunks(client, stream, OffsetSpecification.offset(within.start), within.stop, check_crc=check_crc)


def verify_delivered(
    client: Client, stream: str, within: OffsetRange
) -> Generator[DeliveredChunk | Damage, None, None]:
    """Check everything that a client can check: yields each chunk, and a Damage for each error.

    Chunk ids that never go back, checksums, entries, sub-batches (expanded up to EXPANSION_LIMIT_BYTES per chunk).
    Missing offsets are no damage: tracking chunks are not delivered. Errors as `delivered_chunks`.
    """
    expected = within.start
    for found in delivered_chunks(client, stream, within, check_crc=True):
        yield found
        if isinstance(found, Damage):
            continue
        header = found.header
        if header.chunk_id < expected:
            yield Damage(Path(stream), None, f"chunk id {header.chunk_id}, expected {expected} or more")
        expected = header.next_chunk_id
        if found.crc is CrcState.BAD:
            yield Damage(Path(stream), None, f"data of chunk {header.chunk_id} fails its CRC")
            continue
        for damage in check_data(
            header,
            found.data,
            path=Path(stream),
            position=0,
            data_position=CHUNK_HEADER_BYTES,
        ):
            yield Damage(damage.path, None, f"chunk {header.chunk_id}, byte {damage.position}: {damage.reason}")


def header_at(client: Client, stream: str, place: OffsetSpecification) -> ChunkHeader | None:
    """The header of the first chunk with messages from a place on; None without one. Raises as above."""
    stop = client.resolve_offset(stream, OffsetSpecification.next())
    for found in _chunks(client, stream, place, stop, check_crc=False, credit=1):
        return None if isinstance(found, Damage) else found.header
    return None


def _chunks(
    client: Client,
    stream: str,
    start: OffsetSpecification,
    stop: int,
    *,
    check_crc: bool,
    credit: int = DEFAULT_CREDIT,
) -> Generator[DeliveredChunk | Damage, None, None]:
    subscription = client.subscription(SubscriptionOptions(stream, start, stop=stop, credit=credit))
    try:
        while (chunks := subscription.read_chunks()) is not None:
            for chunk in chunks:
                try:
                    header = ChunkHeader.decode(chunk, path=stream, position=0)
                except CorruptChunkError as error:
                    yield Damage(Path(stream), None, error.reason)
                    continue
                if header.chunk_id >= stop:
                    return
                data = chunk[CHUNK_HEADER_BYTES:]
                state = CrcState.UNCHECKED
                if check_crc:
                    state = CrcState.GOOD if zlib.crc32(data) == header.crc else CrcState.BAD
                yield DeliveredChunk(header, data, state)
    except ConnectionLostError as error:
        position = subscription.position
        place = str(start) if position is None else f"offset {position}"
        yield Damage(Path(stream), None, f"the server delivers nothing from {place} on: {error}")
    finally:
        subscription.abandon()
