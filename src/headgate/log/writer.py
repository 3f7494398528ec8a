"""Appending to a stream: one writer at a time.

Order of a write: the chunks' bytes into the segment in one write, then their index records in one write; now readers
see the chunks, and `append` returns (the confirm). With `Durability.DISK` the segment is flushed before the index is
written, and the index before the confirm. A write that fails halfway is taken back as far as no reader can have seen
it; the stream stays readable and, when there is room again, appendable.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headgate.errors import ConfigError, CorruptChunkError, LogError, StreamReadOnlyError
from headgate.log import format as f
from headgate.log.adoption import StagedSegment
from headgate.log.bloom import bloom_bytes
from headgate.log.checksums import first_mismatch
from headgate.log.chunk_builder import MAX_BYTES, MAX_MESSAGES, FilterValues, pack_chunks
from headgate.log.crash_points import AdoptionStep, MoveStep, reached
from headgate.log.derived import sweep_folder
from headgate.log.entries import encode_entry
from headgate.log.files import DiskFile, OpenFile, file_size, opened, read_all, storage_error
from headgate.log.last_pair import LastPair
from headgate.log.lock import StreamLock, Wait, no_wait
from headgate.log.manifest import Commits, Manifest
from headgate.log.pairs import DERIVED_FOLDER
from headgate.log.pin import Pin, full_error, read_pin, write_pin
from headgate.log.recovery import Tail, recover
from headgate.log.remote import Catalogue, catalogue_of, save_catalogue
from headgate.log.retention import bytes_from, count_below, delete_pairs, kept_by_limits, remote_bytes_from
from headgate.log.roll_forward import finish_pending
from headgate.log.runs import Entries, Run, build_runs, only_message
from headgate.log.seal import seal_if_missing
from headgate.log.segment import Segment
from headgate.log.settings import (
    StreamArguments,
    StreamSettings,
    declared_before,
    declared_covering,
    load_settings,
    save_settings,
)
from headgate.log.stream import Stream, check_elsewhere
from headgate.log.tracking import TrackingState, tracking_of_segment
from headgate.log.tracking_records import (
    TrackingKind,
    check_reference,
    decode_records,
    encode_offsets,
    encode_records,
)

_SEALS_AT_ONCE = 8
_SETTLED_AT_ONCE = 2
"""Limit: settled segments deleted when a new one begins; above one, so that their number falls, but not all at once."""
_NEVER_FULL = 1 << 63


class Durability(Enum):
    """The guarantee of a confirm: the chunk survives the death of the process, or a power loss as well."""

    PROCESS = "process"
    DISK = "disk"


class Appended(msgspec.Struct, eq=False):
    """The chunks that an append wrote, in order: `chunk_ids` and `num_records`, `(chunks,)` int64, without duplicates.

    `next_offset` is the offset after them. Offsets may have holes where a new segment began.
    """

    chunk_ids: NDArray[np.int64]
    num_records: NDArray[np.int64]
    next_offset: int
    num_duplicates: int = 0

    def offsets(self) -> NDArray[np.int64]:
        """The offset of every record written, `(records,)`."""
        total = int(self.num_records.sum())
        before = np.cumsum(self.num_records) - self.num_records
        offsets: NDArray[np.int64] = np.arange(total, dtype=np.int64) + np.repeat(
            self.chunk_ids - before, self.num_records
        )
        return offsets


class Writer:
    """The writer of a stream, from `open` to `close`. Holds the stream's lock; not for several threads at once."""

    def __init__(
        self, stream: Stream, lock: StreamLock, *, now_ms: int, durability: Durability, open_file: OpenFile
    ) -> None:
        self._lock = lock
        self._folder = stream.path
        # Loaded only now, because the previous holder of the lock may have changed them.
        self.settings = _own_settings(stream.path)
        """The content of `stream.json`; only the writer changes it."""
        stream.check_is_there()
        self._is_durable = durability is Durability.DISK
        tail = recover(self._folder, is_durable=self._is_durable)
        self._open_file = open_file
        self._pair = LastPair(self._folder, tail, open_file, is_durable=self._is_durable)
        self.next_offset = tail.next_chunk_id
        """Offset of the next record; a new segment's snapshot may take it. Only the writer moves it."""
        self._epoch = tail.epoch
        self._first_chunk_ids = tail.first_chunk_ids
        self._tracking = self._read_tracking(tail)
        self._pending_offsets: dict[bytes, int] = {}
        self._segment_since: tuple[int, int] | None = None
        """First chunk id of the last segment, and the time of that chunk; None before the first use."""
        self._trim_declaration()
        self._take_pin(read_pin(self._folder))
        self.apply_retention(now_ms=now_ms)
        self._pair.open()
        self._seal()

    @staticmethod
    def open(
        stream: Stream,
        *,
        now_ms: int,
        wait: Wait = no_wait,
        durability: Durability = Durability.PROCESS,
        open_file: OpenFile = DiskFile,
    ) -> Writer:
        """Take the stream's lock, recover the last segment and be ready to append.

        Raises StreamLockedError that names the holder, StreamReadOnlyError for a foreign or write-protected folder,
        StreamReplacedError if another stream of the same name was made since this one was opened.
        """
        writer = Writer._locked(stream, now_ms=now_ms, wait=wait, durability=durability, open_file=open_file)
        try:
            finish_pending(writer, *Commits.of_stream(stream.path))
        except BaseException:
            writer.close()
            raise
        return writer

    @staticmethod
    def finish(
        stream: Stream,
        commits: Commits,
        name: str,
        committing: Manifest,
        *,
        now_ms: int,
        wait: Wait,
        open_file: OpenFile,
    ) -> None:
        """Only finish pending batches, as `open` does: the part of a commit that belongs to this stream.

        See `finish_pending`, also for `commits` and `name`; errors as in `open`.
        """
        writer = Writer._locked(stream, now_ms=now_ms, wait=wait, durability=Durability.PROCESS, open_file=open_file)
        try:
            finish_pending(writer, commits, name, committing=committing)
        finally:
            writer.close()

    @staticmethod
    def _locked(stream: Stream, *, now_ms: int, wait: Wait, durability: Durability, open_file: OpenFile) -> Writer:
        if stream.is_foreign or stream.is_shadow:
            _own_settings(stream.path)
        lock = StreamLock.acquire(stream.path, now_ms=now_ms, wait=wait)
        try:
            return Writer(stream, lock, now_ms=now_ms, durability=durability, open_file=open_file)
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close files and release the lock; closing twice is harmless. Stored offsets that no chunk holds are lost."""
        if self._pair.is_open:
            # If the declared range cannot be trimmed now, the next writer trims it.
            with contextlib.suppress(LogError):
                self._trim_declaration()
        self._pair.close()
        self._lock.release()

    # what it knows

    @property
    def stream(self) -> Stream:
        """The stream as it is now."""
        return Stream(self._folder, self.settings)

    @property
    def first_offset(self) -> int:
        """The first offset that is kept."""
        return self._first_kept(self._first_chunk_ids)

    @property
    def pinned(self) -> Pin | None:
        """The pin, which retention must obey; None: retention follows only the limits."""
        return self._pinned

    @property
    def is_broken(self) -> bool:
        """Whether a write failed and could not be taken back: only a new writer, with its recovery, may continue."""
        return self._pair.is_broken

    @property
    def pending_offsets(self) -> dict[bytes, int]:
        """Stored offsets that no chunk holds yet, by the names of their consumers."""
        return dict(self._pending_offsets)

    def last_sequence(self, reference: str | bytes) -> int | None:
        """The highest sequence written for a publisher reference or query; None if it is not known."""
        name = _as_bytes(reference)
        known = [self._tracking.sequences[name][1]] if name in self._tracking.sequences else []
        kept = self.settings.sequences.get(name.decode("utf-8", "surrogateescape"))
        return max([*known, *([] if kept is None else [kept])], default=None)

    def stored_offset(self, reference: str | bytes) -> int | None:
        """The offset that a consumer stored; None if it stored none."""
        return self._tracking.offsets.get(_as_bytes(reference))

    # appending

    def append(
        self,
        messages: Sequence[tuple[bytes, bytes | None]],
        *,
        now_ms: int,
        publisher: str | bytes | None = None,
        sequences: Sequence[int] | None = None,
        filter_source: str | None = None,
        compression: f.Compression = f.Compression.NONE,
    ) -> Appended:
        """Append messages, each (body, filter value or None); they are confirmed when this returns.

        Grouped into chunks by `build_runs`, of at most 4096 messages or 1 MiB. `now_ms` becomes the chunks' time. A
        `publisher` gives one rising sequence per message: messages not above its last sequence are duplicates and left
        out. `filter_source` is the field that the filter values were filled from; the declaration covers them only if
        it is the declared one. `compression` other than NONE packs the messages of each chunk into a sub-batch, with
        their filter values in the chunk's Bloom filter. Raises ConfigError, StreamFullError, StorageFullError,
        StreamReadOnlyError, LogError; chunks that this call wrote before the error are in the stream, unconfirmed.
        """
        reference = None
        if publisher is not None:
            reference = check_reference(_as_bytes(publisher), what="publisher reference")
            if sequences is None or len(sequences) != len(messages):
                raise ConfigError("a publisher needs one sequence per message")
            kept, highest = [], self.last_sequence(reference)
            for row, sequence in enumerate(sequences):
                if not 0 <= sequence < 2**64:
                    raise ConfigError(f"publisher sequence {sequence}; expected 0 to 2^64 - 1")
                if highest is None or sequence > highest:
                    kept.append(row)
                    highest = sequence
        elif sequences is not None:
            raise ConfigError("sequences without a publisher reference")
        else:
            kept = list(range(len(messages)))
        duplicates = len(messages) - len(kept)
        if not kept:
            return Appended(np.empty(0, np.int64), np.empty(0, np.int64), self.next_offset, duplicates)
        bodies = [messages[row][0] for row in kept]
        longest = max(map(len, bodies))
        if longest > f.MAX_ENTRY_BYTES:
            raise ConfigError(f"a message of {longest} bytes; the limit is {f.MAX_ENTRY_BYTES}")
        run = Run([Entries.of(bodies, FilterValues.of(messages[row][1] for row in kept))], reference)
        if reference is not None and sequences is not None:
            run.sequences = [np.array([sequences[row] for row in kept], dtype=np.uint64)]
        built = build_runs(
            [run],
            filter_size_bytes=self.settings.arguments.filter_size_bytes,
            max_messages=MAX_MESSAGES,
            max_bytes=MAX_BYTES,
            last_trailer=encode_offsets(self._pending_offsets),
        )
        if compression is not f.Compression.NONE:
            built = pack_chunks(built, compression)
        appended = self.append_chunks(built.data, built.positions, now_ms=now_ms, filter_source=filter_source)
        appended.num_duplicates = duplicates
        return appended

    def append_runs(
        self, runs: Sequence[Run], *, max_messages: int, max_bytes: int, now_ms: int, filter_source: str | None
    ) -> tuple[NDArray[np.uint8], list[f.ChunkHeader]]:
        """Append the runs of several publishers as chunks from `build_runs`, with stored offsets in the last chunk.

        Gives the bytes of the chunks as written, and their headers. `filter_source` and errors as in `append_chunks`.
        """
        lone = only_message(runs)
        if lone is not None:
            return self.append_message(*lone, now_ms=now_ms, filter_source=filter_source)
        built = build_runs(
            runs,
            filter_size_bytes=self.settings.arguments.filter_size_bytes,
            max_messages=max_messages,
            max_bytes=max_bytes,
            last_trailer=encode_offsets(self._pending_offsets),
        )
        return built.data, self._append(built.data, built.positions, now_ms=now_ms, filter_source=filter_source)

    def append_message(
        self, message: bytes, filter_value: bytes | None = None, *, now_ms: int, filter_source: str | None = None
    ) -> tuple[NDArray[np.uint8], list[f.ChunkHeader]]:
        """Append a single message, in half the time of the other ways; gives and raises as `append_runs`."""
        self._check_usable()
        self._check_takes_messages()
        self._check_room()
        trailer = encode_offsets(self._pending_offsets) if self._pending_offsets else b""
        self._begin_segment(now_ms)
        chunk_id = self.next_offset
        if filter_source is not None or self.settings.declared:
            self._cover(filter_source, chunk_id + 1)
        header, chunk = f.assemble_chunk(
            encode_entry(message),
            num_entries=1,
            num_records=1,
            bloom=bloom_bytes((filter_value,), self.settings.arguments.filter_size_bytes) if filter_value else b"",
            trailer=trailer,
            timestamp_ms=now_ms,
            epoch=self._epoch,
            chunk_id=chunk_id,
        )
        headers = [header]
        self._put(memoryview(chunk), headers, (len(chunk),))
        return np.frombuffer(chunk, dtype=np.uint8), headers

    def append_chunks(
        self,
        data: NDArray[np.uint8],
        positions: NDArray[np.int64],
        *,
        now_ms: int,
        filter_source: str | None = None,
        is_decided: bool = False,
    ) -> Appended:
        """Append whole user chunks, built beforehand; their ids, time and epoch are written into `data`, in place.

        `data` is a writable, contiguous uint8 array; chunk i lies at `positions[i]`, the next one right after it. All
        chunks that fit a segment are written at once. Publisher sequences in trailers are taken over; the caller must
        check before that they are no duplicates (`last_sequence`). `filter_source` and errors as in `append`, but a
        caller that gives it guarantees that the Bloom bytes of sub-batches have the values of all members.
        `is_decided`: the publisher was promised that the chunks will be stored, so they are written even into a full
        stream. CorruptChunkError, before anything is written, for bytes that are not whole user chunks in a row.
        """
        headers = self._append(data, positions, now_ms=now_ms, filter_source=filter_source, is_decided=is_decided)
        chunk_ids = np.array([header.chunk_id for header in headers], dtype=np.int64)
        num_records = np.array([header.num_records for header in headers], dtype=np.int64)
        return Appended(chunk_ids, num_records, self.next_offset)

    def _append(
        self,
        data: NDArray[np.uint8],
        positions: NDArray[np.int64],
        *,
        now_ms: int,
        filter_source: str | None,
        is_decided: bool = False,
    ) -> list[f.ChunkHeader]:
        """`append_chunks`; gives the headers as written."""
        self._check_usable()
        self._check_takes_messages()
        if not is_decided:
            self._check_room()
        view, places = data.data, positions.tolist()
        headers, sizes = self._headers(view, places)
        row = 0
        while row < len(headers):
            self._begin_segment(now_ms)
            stop, size = self._fitting(sizes, row)
            chunk_id, part = self.next_offset, headers[row:stop]
            if filter_source is not None or self.settings.declared:
                self._cover(filter_source, chunk_id + sum([header.num_records for header in part]))
            for header, place in zip(part, places[row:stop], strict=True):
                header.stamp(view, place, chunk_id=chunk_id, timestamp_ms=now_ms, epoch=self._epoch)
                chunk_id += header.num_records
            self._put(view[places[row] : places[row] + size], part, sizes[row:stop])
            row = stop
        return headers

    def append_replica(self, data: NDArray[np.uint8], positions: NDArray[np.int64], *, begins_segment: bool) -> bool:
        """Append whole chunks of the stream that this one is the archive of, of any type, without changing a byte.

        `data` is contiguous; chunk i lies at `positions[i]`, the next one right after it. Their ids follow each other,
        the first one is the next offset. `begins_segment`: a segment begins with them, as in the original. Gives
        whether the segment before was sealed thereby. Raises CorruptChunkError, before anything is written, for bytes
        that are not such chunks or fail their checksums; LogError and its kinds.
        """
        self._check_usable()
        view = data.data
        headers, sizes = self._headers(view, positions.tolist(), of_any_type=True)
        next_offset = self.next_offset
        for header, position in zip(headers, positions.tolist(), strict=True):
            if header.chunk_id != next_offset:
                raise CorruptChunkError(
                    f"a chunk to archive has the id {header.chunk_id}, expected {next_offset}",
                    path=self._folder,
                    position=position,
                )
            next_offset = header.next_chunk_id
        starts = positions + np.array([f.CHUNK_HEADER_BYTES + header.bloom_length for header in headers])
        lengths, crcs = (
            np.array([getattr(header, name) for header in headers], dtype=np.int64) for name in ("data_length", "crc")
        )
        bad = first_mismatch(data, starts, lengths, crcs)
        if bad is not None:
            raise CorruptChunkError(
                f"the data of chunk {headers[bad].chunk_id} to archive fails its CRC", path=self._folder
            )
        seals = begins_segment and self._pair.num_chunks > 0
        if seals:
            size_before = self._pair.segment_size
            self._pair.begin(self.next_offset)
            self._has_begun(self.next_offset, size_before)
        self._put(view[int(positions[0]) : int(positions[-1]) + sizes[-1]], headers, sizes)
        self._epoch = headers[-1].epoch
        return seals

    @property
    def takes_segments(self) -> bool:
        """Whether `adopt` may come next: not as long as the newest segment, which readers may have open, is empty."""
        return self._pair.num_chunks > 0 and self.settings.archive_of is None

    def adopt(
        self, staged: StagedSegment, *, first_chunk: int, first_sequence: int, now_ms: int, filter_source: str | None
    ) -> bool:
        """Make a staged file the next segment, from the chunk with the number `first_chunk` on, without copying it.

        The chunks get ascending publisher sequences. The stream must take segments (`takes_segments`), and the caller
        is as trusted as that of `append_chunks` with `is_decided`. False, with the stream as it was, if the file cannot
        be a segment: its free room is too small for the snapshot, it is larger than a segment, on another file system,
        or may not be written. Raises StorageFullError, LogError and their kinds.
        """
        self._check_usable()
        arguments, snapshot_id = self.settings.arguments, self.next_offset
        if staged.positions[-1] >= arguments.max_segment_size_bytes or len(staged) >= arguments.max_segment_chunks:
            return False
        # As where a segment begins that is filled later, retention looks at the stream without its content.
        kept = self._kept([*self._first_chunk_ids, snapshot_id], now_ms)
        tracking = dataclasses.replace(self._tracking)
        head = staged.snapshot(
            encode_records(tracking.snapshot(first_offset=self._first_kept(kept))),
            first_chunk=first_chunk,
            chunk_id=snapshot_id,
            timestamp_ms=now_ms,
            epoch=self._epoch,
        )
        if head is None:
            return False
        next_offset = snapshot_id + 1 + staged.num_records(first_chunk)
        self._cover(filter_source, next_offset)
        size_before = self._pair.segment_size
        try:
            records = staged.stamp(
                self._open_file,
                head,
                first_chunk=first_chunk,
                snapshot_id=snapshot_id,
                timestamp_ms=now_ms,
                epoch=self._epoch,
                first_sequence=first_sequence,
                flushed=self._is_durable,
            )
            trailer = staged.last_trailer()
        except PermissionError:
            return False
        except OSError as error:
            raise storage_error(error, staged.path) from error
        reached(AdoptionStep.STAMPED)
        if not self._pair.adopt(staged.path, snapshot_id, records, staged.size_bytes):
            return False
        reached(AdoptionStep.RECORDED)
        self._tracking = tracking
        self._pending_offsets.clear()
        last_id = next_offset - int(staged.headers["num_records"][-1])
        self._take_trailer(trailer, chunk_id=last_id, position=staged.size_bytes - len(trailer))
        self.next_offset = next_offset
        self._has_begun(snapshot_id, size_before)
        self._keep(kept)
        sweep_folder(self._folder / DERIVED_FOLDER, self._folder, now_ms=now_ms)
        return True

    def _put(self, chunks: memoryview, headers: Sequence[f.ChunkHeader], sizes: Sequence[int]) -> None:
        """Write chunks of these `sizes` in bytes, which fit the segment; their headers have ids, time and epoch."""
        pair = self._pair
        start = position = pair.segment_size
        records = []
        for header, size in zip(headers, sizes, strict=True):
            records.append(
                f.encode_index_record(header.chunk_id, header.timestamp_ms, header.epoch, position, header.chunk_type)
            )
            position += size

        def accept(count: int) -> int:
            """The first `count` chunks are in the stream: apply their trailers, move the end; gives their bytes."""
            stop = start
            for header, size in zip(headers[:count], sizes, strict=False):
                stop += size
                if header.trailer_length:
                    at = stop - header.trailer_length
                    self._take_trailer(bytes(chunks[at - start : stop - start]), chunk_id=header.chunk_id, position=at)
                if header.chunk_type != f.ChunkType.USER:
                    self._pending_offsets.clear()
            if count:
                last = headers[count - 1]
                self.next_offset = last.chunk_id + last.num_records
            return stop - start

        pair.put(chunks, b"".join(records), accept)

    def store_offset(self, reference: str | bytes, offset: int) -> None:
        """Keep a consumer's offset for the next chunk of `append`, or until `flush_offsets`. Raises ConfigError."""
        name = check_reference(_as_bytes(reference), what="consumer reference")
        if not 0 <= offset < 2**64:
            raise ConfigError(f"stored offset {offset}; expected 0 to 2^64 - 1")
        self._tracking.offsets[name] = offset
        self._pending_offsets[name] = offset

    def flush_offsets(self, *, now_ms: int) -> None:
        """Write stored offsets that no chunk holds yet into a tracking chunk, which takes one offset."""
        self._check_usable()
        self._check_takes_messages()
        if self._pending_offsets:
            self._begin_segment(now_ms)
        if self._pending_offsets:
            self._write_tracking(encode_offsets(self._pending_offsets), f.ChunkType.TRACKING_DELTA, now_ms)

    def sync(self) -> None:
        """Flush the last segment and its index to the device: a power loss then does not take `next_offset` back."""
        self._check_usable()
        self._pair.sync()

    # settings

    def record_sequence(
        self, query: str, sequence: int, *, forgotten: Collection[str] = (), flushed: bool = True
    ) -> None:
        """Keep the last sequence of a query in `stream.json`, where the limit of snapshots does not drop it.

        The finished queries `forgotten` are removed. If not `flushed`, a power loss may remove the sequence, like
        unflushed chunks; chunks that remain still have theirs in their trailers.
        """
        kept = {name: last for name, last in self.settings.sequences.items() if name not in forgotten}
        self._save(flushed=flushed, sequences={**kept, query: sequence})

    def change(
        self,
        *,
        now_ms: int,
        arguments: StreamArguments | None = None,
        filter_source: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> None:
        """Change arguments (retention follows at once) or the declared filter source (None: no declaration)."""
        if arguments is not None:
            self._check_arguments(arguments)
            self._save(arguments=arguments)
            self.apply_retention(now_ms=now_ms)
        if filter_source is not msgspec.UNSET and filter_source != self.settings.filter_source:
            self._trim_declaration()
            self._save(filter_source=filter_source)

    def change_arguments(self, arguments: StreamArguments, declaration: dict[str, Any] | None, *, now_ms: int) -> None:
        """Change the limits; `declaration` are the arguments with which a client would declare them. Applies retention.

        On disk when it returns; size of filters and first offset stay as they are. Raises ConfigError, LogError.
        """
        self._check_arguments(arguments)
        self._save(arguments=arguments, declaration=declaration)
        self.apply_retention(now_ms=now_ms)

    def _check_arguments(self, arguments: StreamArguments) -> None:
        """Raise ConfigError for invalid arguments, and if segments would be left behind in object storage."""
        arguments.check()
        before = self.settings.arguments.remote
        if arguments.remote == before:
            return
        moved = 0 if before is None else len(catalogue_of(self._folder))
        if moved:
            raise ConfigError(
                f"{moved} segments of stream {self.settings.name!r} are at {before}, where no reader would look for "
                "them any more; copy the stream to another one, or keep its remote"
            )
        check_elsewhere(arguments.remote, self.settings.name, self._folder)
        if arguments.remote is not None:
            save_catalogue(self._folder, Catalogue.empty(self.settings.identity))

    def apply_retention(self, *, now_ms: int) -> None:
        """Delete segments beyond the stream's limits, up to the pin. Call it once an hour if nothing is written."""
        if not self._tracks_in_segment_before():
            self._keep(self._kept(self._first_chunk_ids, now_ms))
            sweep_folder(self._folder / DERIVED_FOLDER, self._folder, now_ms=now_ms)

    def drop_first_below(self, offset: int) -> bool:
        """Delete the oldest segment if it ends at or before `offset`; gives whether it did.

        Never the last segment; one at a time, because the system takes a millisecond to delete some megabytes. Raises
        as `apply_retention`.
        """
        is_below = count_below(self._first_chunk_ids, offset) > 0 and not self._tracks_in_segment_before()
        if is_below:
            self._keep(self._first_chunk_ids[1:])
        return is_below

    def release_local(self, *, at_most: int | None = None) -> int:
        """Delete the oldest segments in the folder that are in object storage as well, beyond `local_bytes`.

        Those that subscriptions and consumer groups still need (`pin`) stay, so that their copies are read here. Gives
        how many: none without a remote, and never the last one. Raises as `apply_retention`.
        """
        arguments = self.settings.arguments
        catalogue = None if arguments.remote is None else catalogue_of(self._folder)
        if catalogue is None or catalogue.identity != self.settings.identity or self._tracks_in_segment_before():
            return 0
        ids = self._first_chunk_ids
        moved = len(catalogue.moved_among(ids[:-1]))
        kept_bytes = sum(file_size(self._folder / f.segment_name(chunk_id)) for chunk_id in ids[:moved])
        count = 0
        most = moved if self._pinned is None else min(moved, count_below(ids, self._pinned.offset))
        while count < min(most, at_most or most) and kept_bytes > arguments.local_bytes:
            kept_bytes -= file_size(self._folder / f.segment_name(ids[count]))
            count += 1
        self._keep(ids[count:])
        reached(MoveStep.RELEASED)
        return count

    def pin(self, pin: Pin | None) -> None:
        """Keep the messages from `pin.offset` on for subscriptions and consumer groups; None removes the pin.

        Retention deletes no segment that holds one of these messages. When they have `pin.quota_bytes`, appends raise
        StreamFullError, except those of decided batches; the append that exceeds the quota is the last one.

        A lowered pin, also the first one, is on the device when this returns, and counts from then on. A raised pin
        counts at once, even if it cannot be written, and a power loss may bring an earlier one back, which keeps more:
        raising it once a second is enough. If the stream drops settled segments, each call deletes at most one.
        Cost: 25 µs and a `stat` per segment from the offset on; for a lowered pin a flush. Raises StorageFullError,
        StreamReadOnlyError or LogError.
        """
        self._check_usable()
        before = self._pinned
        is_lowered = pin is not None and (before is None or pin.offset < before.offset)
        if is_lowered:
            write_pin(self._folder, pin, flushed=True, open_file=self._open_file)
        if pin != before:
            self._take_pin(pin)
        if pin is not None and self.settings.arguments.drops_settled:
            self.drop_first_below(pin.offset)
        if pin != before and not is_lowered:
            write_pin(self._folder, pin, flushed=pin is None, open_file=self._open_file)

    def _take_pin(self, pin: Pin | None) -> None:
        self._pinned = pin
        # The size of the last segment at which the stream is full.
        self._full_at = _NEVER_FULL
        if pin is not None:
            self._full_at = self._pair.segment_size - self._held_bytes(pin) + pin.quota_bytes

    def _held_bytes(self, pin: Pin) -> int:
        here = bytes_from(self._folder, self._first_chunk_ids, pin.offset, next_offset=self.next_offset)
        if self.settings.arguments.remote is None:
            return here
        return here + remote_bytes_from(self._folder, self._first_chunk_ids[0], pin.offset)

    def _check_takes_messages(self) -> None:
        if self.settings.archive_of is not None:
            raise StreamReadOnlyError(
                f"the stream is the archive of {self.settings.archive_of}: only headgate stream archive writes to it",
                path=self._folder,
            )

    def _check_room(self) -> None:
        if self._pair.segment_size >= self._full_at:
            assert self._pinned is not None
            raise full_error(self._folder, self._pinned, self._held_bytes(self._pinned))

    def _first_kept(self, ids: Sequence[int]) -> int:
        """The first offset of a stream that keeps these pairs in its folder."""
        catalogue = None if self.settings.arguments.remote is None else catalogue_of(self._folder)
        return ids[0] if catalogue is None else catalogue.first_before(ids[0])

    def _tracks_in_segment_before(self) -> bool:
        """Whether the tracking records are in the segment before the last one: until a snapshot is written."""
        return bool(self._tracking) and not self._pair.num_chunks

    def _kept(self, ids: list[int], now_ms: int) -> list[int]:
        """The pairs of these that the limits and the pin keep now."""
        arguments, pin = self.settings.arguments, self._pinned
        kept = kept_by_limits(
            self._folder,
            ids,
            max_length_bytes=arguments.max_length_bytes,
            max_age_ms=arguments.max_age_ms,
            now_ms=now_ms,
        )
        if pin is None:
            return kept
        settled = count_below(ids, pin.offset)
        dropped = min(len(ids) - len(kept), settled)
        if arguments.drops_settled:
            dropped = max(dropped, min(settled, _SETTLED_AT_ONCE))
        return ids[dropped:]

    def _keep(self, kept: list[int]) -> None:
        """Delete the pairs before the kept ones."""
        dropped = self._first_chunk_ids[: len(self._first_chunk_ids) - len(kept)]
        self._first_chunk_ids = kept
        delete_pairs(self._folder, dropped)

    # inside

    def _read_tracking(self, tail: Tail) -> TrackingState:
        if not tail.num_chunks:
            return TrackingState()
        with self._segment(tail.first_chunk_id, stop_offset=None).open() as reader:
            return tracking_of_segment(reader)

    def _check_usable(self) -> None:
        if not self._pair.is_open:
            raise LogError("the writer is closed", path=self._folder)
        if self._pair.is_broken:
            raise LogError("an earlier write failed and could not be taken back; open a new writer", path=self._folder)

    def _headers(
        self, data: memoryview, positions: list[int], *, of_any_type: bool = False
    ) -> tuple[list[f.ChunkHeader], list[int]]:
        """The headers and sizes of user chunks, or chunks of any type, that lie one behind the other.

        Raises CorruptChunkError for anything else.
        """
        headers, sizes = [], []
        stop = positions[0] if positions else 0
        for position in positions:
            head = data[max(0, position) : position + f.CHUNK_HEADER_BYTES]
            header = f.ChunkHeader.decode(head, path=self._folder, position=position)
            is_next = position == stop >= 0
            size = header.size_bytes
            stop = position + size
            is_wanted = of_any_type or header.chunk_type == f.ChunkType.USER
            if not is_next or not is_wanted or header.num_records < 1 or stop > len(data):
                what = "chunks" if of_any_type else "user chunks"
                raise CorruptChunkError(f"chunks to append are not {what} one behind the other", path=self._folder)
            headers.append(header)
            sizes.append(size)
        return headers, sizes

    def _fitting(self, sizes: Sequence[int], row: int) -> tuple[int, int]:
        """The chunk after `row` that must go to the next segment, and the bytes before it."""
        arguments = self.settings.arguments
        room = arguments.max_segment_size_bytes - self._pair.segment_size
        last = min(len(sizes), row + arguments.max_segment_chunks - self._pair.num_chunks)
        stop, size = row + 1, sizes[row]
        while stop < last and size < room:
            size += sizes[stop]
            stop += 1
        return stop, size

    def _begin_segment(self, now_ms: int) -> None:
        """Prepare to write a chunk: begin a new pair if the last one is full, write a snapshot if the pair is new."""
        arguments, pair = self.settings.arguments, self._pair
        is_full = (
            pair.segment_size >= arguments.max_segment_size_bytes
            or pair.num_chunks >= arguments.max_segment_chunks
            or (arguments.max_segment_age_ms is not None and self._is_old(now_ms, arguments.max_segment_age_ms))
        )
        kept = self._first_chunk_ids
        if is_full and pair.num_chunks:
            size_before = pair.segment_size
            pair.begin(self.next_offset)
            self._has_begun(self.next_offset, size_before)
            kept = self._kept(self._first_chunk_ids, now_ms)
        # Unlike the original's, a snapshot has no record of the chunk that follows it: a crash between the two must not
        # leave a sequence without its message.
        if not pair.num_chunks and pair.first_chunk_id > 0 and self._tracking:
            records = self._tracking.snapshot(first_offset=self._first_kept(kept))
            if records:
                self._write_tracking(encode_records(records), f.ChunkType.TRACKING_SNAPSHOT, now_ms)
        # Until the snapshot is written, the tracking records are in the segment before.
        if kept is not self._first_chunk_ids:
            self._keep(kept)
            sweep_folder(self._folder / DERIVED_FOLDER, self._folder, now_ms=now_ms)

    def _has_begun(self, first_chunk_id: int, size_before: int) -> None:
        """Take note of a new segment, and seal the one before it, of `size_before` bytes."""
        self._full_at -= size_before
        self._first_chunk_ids.append(first_chunk_id)
        self._seal()

    def _is_old(self, now_ms: int, age_ms: int) -> bool:
        """Whether the first chunk of the last segment is as old as a segment may become, `age_ms`."""
        if not self._pair.num_chunks:
            return False
        if self._segment_since is None or self._segment_since[0] != self._pair.first_chunk_id:
            path = self._folder / f.index_name(self._pair.first_chunk_id)
            try:
                with opened(path) as descriptor:
                    raw = read_all(descriptor, f.INDEX_RECORD_BYTES, f.FILE_HEAD_BYTES)
            except OSError as error:
                raise storage_error(error, path) from error
            self._segment_since = self._pair.first_chunk_id, f.IndexRecord.decode(raw).timestamp_ms
        return now_ms - self._segment_since[1] >= age_ms

    def _seal(self) -> None:
        """Seal the newest segments before the last one that have no seal, some at a time.

        A segment may lack its seal because a writer died before it, or could not write it.
        """
        ids = self._first_chunk_ids
        for first_chunk_id, stop in zip(ids[-2::-1][:_SEALS_AT_ONCE], ids[:0:-1], strict=False):
            seal_if_missing(self._segment(first_chunk_id, stop_offset=stop), flushed=self._is_durable)

    def _segment(self, first_chunk_id: int, *, stop_offset: int | None) -> Segment:
        is_newest = stop_offset is None
        return Segment(self._folder, self.settings.identity, first_chunk_id, is_newest, True, stop_offset)

    def _write_tracking(self, body: bytes, chunk_type: f.ChunkType, now_ms: int) -> None:
        header, chunk = f.assemble_chunk(
            encode_entry(body),
            num_entries=1,
            num_records=1,
            chunk_type=chunk_type,
            timestamp_ms=now_ms,
            epoch=self._epoch,
            chunk_id=self.next_offset,
        )
        self._put(memoryview(chunk), (header,), (len(chunk),))

    def _take_trailer(self, trailer: bytes, *, chunk_id: int, position: int) -> None:
        for record in decode_records(trailer, in_snapshot=False, path=self._folder, position=position):
            self._tracking.apply(record, chunk_id=chunk_id)
            is_settled = self._pending_offsets.get(record.reference) == record.value
            if record.kind is TrackingKind.OFFSET and is_settled:
                del self._pending_offsets[record.reference]

    def _save(self, *, flushed: bool = True, **changes: object) -> None:
        settings = msgspec.structs.replace(self.settings, **changes)
        if settings != self.settings:
            save_settings(self._folder, settings, flushed=flushed)
            self.settings = settings

    def _cover(self, filter_source: str | None, stop: int) -> None:
        """Record in `stream.json`, before offsets up to `stop` are written, whether the declaration covers them."""
        settings, next_offset = self.settings, self.next_offset
        self._save(declared=declared_covering(settings, filter_source, next_offset=next_offset, stop=stop))

    def _trim_declaration(self) -> None:
        """Cut declared ranges to the written offsets."""
        self._save(declared=declared_before(self.settings, self.next_offset))


def _own_settings(folder: Path) -> StreamSettings:
    settings = load_settings(folder)
    if settings is None:
        raise StreamReadOnlyError(
            "a foreign stream folder (no stream.json); adopt it before writing: headgate stream adopt", path=folder
        )
    Stream(folder, settings).check_has_folder()
    return settings


def _as_bytes(reference: str | bytes) -> bytes:
    return reference.encode() if isinstance(reference, str) else reference
