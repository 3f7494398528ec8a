"""A stream folder as readers see it: its segments, its ends, and the places of offset specifications."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import numpy as np

from headgate.errors import (
    ConfigError,
    LogError,
    OffsetOutOfRangeError,
    StreamExistsError,
    StreamNotFoundError,
    StreamReadOnlyError,
)
from headgate.log.bloom import DEFAULT_FILTER_SIZE_BYTES
from headgate.log.files import DiskFile, OpenFile, file_size, storage_error
from headgate.log.format import (
    FILE_HEAD_BYTES,
    ChunkType,
    index_name,
    segment_name,
)
from headgate.log.lock import LOCK_NAME, StreamLock, Wait, no_wait
from headgate.log.offsets import OffsetKind, OffsetSpecification
from headgate.log.pairs import SETTINGS_NAME, create_pair, delete_pair, find_missing, finish_deletions, ids_among
from headgate.log.remote import (
    Catalogue,
    catalogue_of,
    load_catalogue,
    load_derived,
    object_url,
    save_catalogue,
    storage_at,
)
from headgate.log.remote.catalogue import CATALOGUE_NAME, CATALOGUE_OBJECT
from headgate.log.remote.shadow import doubt_shadow, refresh_shadow, shadow_folder
from headgate.log.segment import Segment, SegmentReader
from headgate.log.segment_list import SegmentList
from headgate.log.settings import (
    DEFAULT_MAX_SEGMENT_SIZE_BYTES,
    StreamArguments,
    StreamSettings,
    check_identity,
    load_settings,
    save_settings,
)

Result = TypeVar("Result")

_FOREIGN_NAME = re.compile(r"__(.+)_[0-9]+")
_BACKWARD_ROWS = 4096
_IDENTITY_BYTES = 16
MAX_FOLDER_NAME_BYTES = 255
SHORTENED = ","
"""Separator after the beginning of a name that is too long for a folder; percent-encoded names have no comma."""
_DIGEST_DIGITS = 32


def foreign_name(folder_name: str) -> str:
    """The stream name in the name of a folder of RabbitMQ."""
    match = _FOREIGN_NAME.fullmatch(folder_name)
    return match[1] if match else folder_name


@dataclass(slots=True)
class Attachment:
    """The place where a reader begins: `row` of the chunk table of `segment`, with the message at `offset`.

    `row` is one after the last row if there is nothing to read yet. `chunk_id` is the chunk of the row, or the next
    chunk to come; `offset` is in the chunk or after it, and messages below it are skipped.
    """

    segment: Segment
    row: int
    chunk_id: int
    offset: int


def remote_location(base: str, name: str) -> str:
    """The location of a stream's objects below the `remote` of its settings."""
    return _location_in(base, encoded_name(name))


def check_elsewhere(remote: str | None, name: str, folder: Path) -> None:
    """Raise ConfigError if the objects of a stream would lie in its own folder, where moved segments are deleted."""
    if remote is not None and storage_at(remote_location(remote, name)).is_folder(folder):
        raise ConfigError(
            f"remote is {remote!r}, so the objects of stream {name!r} would lie in its own folder, {folder}; "
            "expected another place"
        )


def _location_in(base: str, folder_name: str) -> str:
    path, mark, options = base.partition("?")
    # Percent signs of the folder's name are percent-encoded once more: it is part of a URI.
    return f"{path.rstrip('/')}/{quote(folder_name, safe='')}{mark}{options}"


def encoded_name(name: str) -> str:
    """The name of the folder for a stream's name: percent-encoded; if that is longer than 255 bytes, shortened.

    Its beginning, a comma and 32 hexadecimal digits of the SHA-256 of the name in UTF-8 are the shortened form.
    """
    encoded = quote(name, safe="")
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) > MAX_FOLDER_NAME_BYTES:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]
        encoded = encoded[: MAX_FOLDER_NAME_BYTES - _DIGEST_DIGITS - 1] + SHORTENED + digest
    return encoded


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream folder, for reading; `settings` is None for a foreign one, as RabbitMQ wrote it. Picklable.

    Holds no open file: every call reads the folder as it is then. Writing goes through `Writer`.
    """

    path: Path
    settings: StreamSettings | None

    @staticmethod
    def open(path: str | Path) -> Stream:
        """The stream in a folder. Raises StreamNotFoundError without a stream, LogError for a wrong `stream.json`."""
        folder = Path(path)
        settings = load_settings(folder)
        if settings is None and not _first_chunk_ids(folder):
            raise StreamNotFoundError("no stream here: neither stream.json nor a pair of log files", path=folder)
        if settings is None and _is_unfinished(folder):
            raise StreamNotFoundError("no stream here: a crash ended its creation; create it again", path=folder)
        if settings is not None and settings.arguments.remote is not None and (folder / CATALOGUE_OBJECT).exists():
            raise LogError(
                f"objects of the stream {settings.name!r} lie here, as in object storage, and are only read: "
                f"give the name of the stream, and --root {folder.absolute().parent.as_uri()}",
                path=folder,
            )
        return Stream(folder, settings)

    @staticmethod
    def open_remote(root: str, folder_name: str) -> Stream:
        """The stream with objects in a folder at the location of a root in object storage, without files of its own.

        Raises StreamNotFoundError, RemoteStorageError, LogError.
        """
        folder, location = shadow_folder(root, folder_name), _location_in(root, folder_name)
        refresh_shadow(folder, location, at_once=True)
        try:
            catalogue_of(folder)
            return Stream.open(folder)
        except LogError:
            # A power loss may leave files of the shadow empty, or in part.
            doubt_shadow(folder)
            refresh_shadow(folder, location, at_once=True)
            return Stream.open(folder)

    @staticmethod
    def find(folder: Path) -> Stream | None:
        """The stream of ours in a folder; None without `stream.json`. Raises LogError for a wrong one."""
        settings = load_settings(folder)
        return None if settings is None else Stream(folder, settings)

    @staticmethod
    def create(
        path: str | Path,
        *,
        name: str,
        now_ms: int,
        arguments: StreamArguments | None = None,
        filter_source: str | None = None,
        declaration: Mapping[str, object] | None = None,
        identity: str | None = None,
        archive_of: str | None = None,
        flushed: bool = True,
        wait: Wait = no_wait,
        open_file: OpenFile = DiskFile,
    ) -> Stream:
        """Create a new, empty stream; `filter_source` declares the field that its filter values come from.

        `identity` distinguishes it from other streams of its name, before and after; None makes a random one.
        `archive_of` is the identity of the foreign stream that it becomes the archive of (`archive.py`).

        `declaration` are the arguments of a client, kept unchanged. If not `flushed`, a power loss may remove the
        stream, or leave it with empty settings, and opening it then raises an error.

        Raises ConfigError for a wrong argument, StreamExistsError, StreamLockedError if another process is creating
        it and `wait` gives up, and StorageFullError or StreamReadOnlyError if it cannot be created; then nothing of it
        is left.
        """
        folder = Path(path)
        settings = StreamSettings(
            name=name,
            created_ms=now_ms,
            identity=identity or secrets.token_hex(_IDENTITY_BYTES),
            arguments=arguments or StreamArguments(),
            filter_source=filter_source,
            declaration=None if declaration is None else dict(declaration),
            archive_of=archive_of,
        )
        settings.arguments.check()
        check_elsewhere(settings.arguments.remote, name, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise StreamExistsError("a file of that name is there already", path=folder) from error
        except OSError as error:
            raise storage_error(error, folder) from error
        with _removed_if_empty(folder), StreamLock.acquire(folder, now_ms=now_ms, wait=wait):
            if (folder / SETTINGS_NAME).exists():
                raise StreamExistsError(f"stream {name!r} is there already", path=folder)
            _, segments = ids_among(os.listdir(folder))
            if any(file_size(folder / segment_name(chunk_id)) > FILE_HEAD_BYTES for chunk_id in segments):
                raise StreamExistsError("a foreign stream is there already; adopt it instead", path=folder)
            try:
                for chunk_id in segments:
                    # Left by a creation that a crash ended; it may have begun at another offset.
                    delete_pair(folder, chunk_id)
                finish_deletions(folder, os.listdir(folder))
                for file in create_pair(folder, settings.arguments.initial_offset, open_file):
                    file.close()
                if settings.arguments.remote is not None:
                    save_catalogue(folder, Catalogue.empty(settings.identity))
                save_settings(folder, settings, flushed=flushed)
            except BaseException as error:
                _remove_unfinished(folder, settings.arguments.initial_offset)
                if isinstance(error, OSError):
                    raise storage_error(error, folder) from error
                raise
        return Stream(folder, settings)

    @staticmethod
    def adopt(
        path: str | Path,
        *,
        now_ms: int,
        name: str | None = None,
        max_segment_size_bytes: int | None = None,
        wait: Wait = no_wait,
    ) -> Stream:
        """Make a foreign folder ours by writing its `stream.json`; from then on it can be appended to.

        Its broker must not use the folder any more. The filter size is the last one seen, the name that of the folder
        unless given; the identity stays if the folder still has the name that RabbitMQ gave it, else a new one is made.
        Raises StreamExistsError if it is ours already, CorruptChunkError if a file is missing.
        """
        stream = Stream.open(path)
        stream.check_has_folder()
        arguments = StreamArguments(
            filter_size_bytes=max(stream.filter_size_bytes, DEFAULT_FILTER_SIZE_BYTES),
            max_segment_size_bytes=max_segment_size_bytes or DEFAULT_MAX_SEGMENT_SIZE_BYTES,
        )
        arguments.check()
        settings = StreamSettings(
            name=name or stream.name,
            created_ms=now_ms,
            # Other folders may be copied to the same name one after the other.
            identity=stream.identity
            if _FOREIGN_NAME.fullmatch(stream.identity)
            else secrets.token_hex(_IDENTITY_BYTES),
            arguments=arguments,
        )
        with StreamLock.acquire(stream.path, now_ms=now_ms, wait=wait):
            if not stream.is_foreign or load_settings(stream.path) is not None:
                raise StreamExistsError(f"stream {stream.name!r} has a stream.json already", path=stream.path)
            stream.segments()
            save_settings(stream.path, settings)
        return Stream(stream.path, settings)

    @property
    def is_foreign(self) -> bool:
        """Whether the folder has no `stream.json`: RabbitMQ's own, read only until it is adopted."""
        return self.settings is None

    @property
    def body_schema(self) -> str | None:
        """The declared schema of its messages' bodies, as a text; None without one."""
        return None if self.settings is None else self.settings.arguments.body_schema

    @property
    def is_shadow(self) -> bool:
        """Whether it is read from object storage without its folder: only its sealed segments, and read only."""
        return self.settings is not None and self.settings.location is not None

    @property
    def place(self) -> str:
        """Its folder, for messages; of one without a folder the place of its objects."""
        if self.settings is not None and self.settings.location is not None:
            return object_url(self.settings.location, "").rstrip("/")
        return str(self.path)

    def check_has_folder(self) -> None:
        """Raise StreamReadOnlyError for a stream that is read from object storage without its folder."""
        if self.settings is not None and self.settings.location is not None:
            raise StreamReadOnlyError(
                "the stream is read from object storage, without its folder; write to it where its folder is",
                path=self.settings.location,
            )

    @property
    def name(self) -> str:
        """The stream's name; for a foreign folder the text between `__` and `_<digits>` of the folder's name."""
        if self.settings is not None:
            return self.settings.name
        return foreign_name(self.path.resolve().name)

    @property
    def identity(self) -> str:
        """The identity among streams of the same name; for a foreign one the folder's name, made once by RabbitMQ."""
        return self.path.resolve().name if self.settings is None else self.settings.identity

    @property
    def filter_size_bytes(self) -> int:
        """Bytes of the Bloom filters that are written; for a foreign folder the last length seen in it, else 16."""
        if self.settings is not None:
            return self.settings.arguments.filter_size_bytes
        for segment in reversed(self.segments()):
            with segment.open() as reader:
                rows = len(reader.chunks())
                for stop in range(rows, 0, -_BACKWARD_ROWS):
                    lengths = reader.headers(max(0, stop - _BACKWARD_ROWS), stop).bloom_length
                    filled = np.flatnonzero(lengths)
                    if len(filled):
                        return int(lengths[filled[-1]])
        return DEFAULT_FILTER_SIZE_BYTES

    def segments(self, *, at_once: bool = False) -> SegmentList:
        """The segments, oldest first, as the folder and its catalogue of remote segments are now.

        Without its folder they are those of the last second; with `at_once` also those of now. Raises CorruptChunkError
        where a file with messages is missing.
        """
        return self._segments(lambda: _listed_pairs(self.path), at_once=at_once)

    def segments_left(self) -> SegmentList:
        """The existing segments, even if others between them are missing; for inspecting a damaged folder."""
        return self._segments(lambda: sorted(_first_chunk_ids(self.path)))

    def _segments(self, list_pairs: Callable[[], list[int]], *, at_once: bool = False) -> SegmentList:
        if self.is_shadow:
            assert self.remote is not None
            refresh_shadow(self.path, self.remote, at_once=at_once)
            catalogue = load_catalogue(self.path)
            derived = load_derived(self.path)
            return SegmentList(self.path, self.identity, True, [], 0, self.remote, catalogue, derived)
        location = self.remote
        if location is None and (self.path / CATALOGUE_NAME).exists():
            # It was given a remote after it was opened here.
            location = Stream(self.path, load_settings(self.path)).remote
        remote = None if location is None else catalogue_of(self.path)
        derived = None if location is None else load_derived(self.path)
        # Listed after the catalogue: a segment is in it before its files go.
        ids = list_pairs()
        sealed = len(ids) - 1
        # A newest segment without a chunk may be deleted by recovery, which then cuts the one before it.
        if sealed > 0 and file_size(self.path / index_name(ids[-1])) <= FILE_HEAD_BYTES:
            sealed -= 1
        return SegmentList(self.path, self.identity, self.settings is not None, ids, sealed, location, remote, derived)

    @property
    def remote(self) -> str | None:
        """The location in object storage of its oldest segments; None for a stream that has none there."""
        if self.settings is None:
            return None
        if self.settings.location is not None:
            return self.settings.location
        if self.settings.arguments.remote is None:
            return None
        return remote_location(self.settings.arguments.remote, self.name)

    def may_be_remote(self, offset: int) -> bool:
        """Whether reading from an offset on may wait for object storage. Cost: a `stat`."""
        catalogue = load_catalogue(self.path)
        return catalogue is not None and offset < catalogue.stop

    def has_given_up(self, segment: Segment) -> bool:
        """Whether retention deleted a segment since it was listed: all remaining segments begin behind it."""
        segments = self.segments_left()
        return (segments[0].first_chunk_id if segments else -1) > segment.first_chunk_id

    def check_is_there(self) -> None:
        """Raises StreamNotFoundError if it was deleted since it was opened, StreamReplacedError if also made again."""
        check_identity(self.path, self.identity, name=self.name)

    def first_offset(self) -> int:
        """The first chunk id that is kept; the next offset if there is none."""
        return self.segments().first_offset

    def next_offset(self) -> int:
        """The offset behind everything written."""
        return beside_retention(self._next_offset)

    def _next_offset(self) -> int:
        segments = self.segments()
        if not segments:
            return segments.first_offset
        if (stop := segments[-1].stop_offset) is not None:
            return stop
        with segments[-1].open() as reader:
            return reader.next_chunk_id

    def attach(self, specification: OffsetSpecification, *, now_ms: int) -> Attachment:
        """The place where a reader with a specification begins (osiris_log.md section 9). Reads indexes and one header.

        An offset before the first means the first, an offset behind the end `next`; a time before the first chunk means
        `first`, a time after the last one `next`. Retried when retention deletes the segment meanwhile.
        """
        return beside_retention(lambda: self._attach(specification.resolve(now_ms)))

    def offset_of(self, specification: OffsetSpecification, *, now_ms: int) -> int:
        """The offset of the first message that a reader with a specification gets; see `attach`.

        The first offset and one in a segment in object storage are known without a request.
        """
        if self.remote is not None and specification.kind in (OffsetKind.FIRST, OffsetKind.OFFSET):
            segments = self.segments()
            given = specification.value if specification.kind is OffsetKind.OFFSET else 0
            offset = max(given, segments.first_offset)
            if segments.row_of(offset) < segments.num_remote and offset < segments.remote_stop:
                return offset
        return self.attach(specification, now_ms=now_ms).offset

    def _attach(self, specification: OffsetSpecification) -> Attachment:
        segments = self.segments()
        if not segments and self.is_shadow:
            raise StreamNotFoundError(
                f"nothing of the stream is in object storage now: limits deleted all segments there, and the next one, "
                f"from offset {segments.first_offset} or later on, has not moved yet",
                path=self.remote or "",
            )
        if not segments:
            raise StreamNotFoundError("the stream has no segment; its writer has not recovered it yet", path=self.path)
        kind, value = specification.kind, specification.value
        if kind is OffsetKind.FIRST:
            return _at_row(segments[0], 0)
        if kind is OffsetKind.LAST:
            return self._attach_last(segments)
        if kind is OffsetKind.OFFSET:
            return self._attach_offset(segments, value)
        if kind is OffsetKind.TIMESTAMP:
            return self._attach_timestamp(segments, value)
        return _behind(segments[-1])

    def offset_here_since(self, timestamp_ms: int) -> int:
        """As `offset_of` a time, among the messages in the stream's folder: object storage is not asked."""
        return beside_retention(lambda: self._attach_timestamp(self.segments().here(), timestamp_ms)).offset

    @staticmethod
    def _attach_last(segments: SegmentList) -> Attachment:
        for segment in reversed(segments):
            with segment.open() as reader:
                user_rows = np.flatnonzero(reader.chunks().type == ChunkType.USER)
                if len(user_rows):
                    return _place(segment, reader, int(user_rows[-1]))
        return _behind(segments[-1])

    @staticmethod
    def _attach_offset(segments: SegmentList, offset: int) -> Attachment:
        offset = max(offset, segments[0].first_chunk_id)
        holder = segments[segments.row_of(offset)]
        with holder.open() as reader:
            if offset >= reader.next_chunk_id:
                return _behind(segments[-1])
            row = int(np.searchsorted(reader.chunks().chunk_id, offset, side="right")) - 1
            place = _place(holder, reader, row)
        place.offset = offset
        return place

    @staticmethod
    def _attach_timestamp(segments: SegmentList, timestamp_ms: int) -> Attachment:
        # All segments in front of this one are older.
        last = segments.last_remote_since(timestamp_ms)
        for position in range(len(segments) - 1, -1, -1):
            if position < segments.num_remote:
                position = last
                if position < 0:
                    break
            with segments[position].open() as reader:
                times = reader.chunks().timestamp_ms
                if not len(times) or times[0] > timestamp_ms:
                    continue
                late = np.flatnonzero(times >= timestamp_ms)
                if len(late):
                    return _place(segments[position], reader, int(late[0]))
            if position + 1 < len(segments):
                return _at_row(segments[position + 1], 0)
            return _behind(segments[-1])
        return _at_row(segments[0], 0)


def beside_retention(read: Callable[[], Result]) -> Result:
    """The result of `read`, which lists the segments and opens one; retried if retention deleted that one meanwhile."""
    for _ in range(3):
        try:
            return read()
        except OffsetOutOfRangeError:
            continue
    return read()


@contextlib.contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    """After an error, remove the folder if it is empty."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def _remove_unfinished(folder: Path, first_chunk_id: int) -> None:
    """Remove the files of a failed creation. The caller holds the lock, whose file goes as well."""
    with contextlib.suppress(OSError):
        delete_pair(folder, first_chunk_id)
        (folder / LOCK_NAME).unlink(missing_ok=True)


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder without `stream.json` is a creation that was killed.

    It has a lock or an empty pair, and no more; RabbitMQ's folders have no lock of ours.
    """
    names = {name for name in os.listdir(folder) if not name.startswith(".")}
    indexes, segments = ids_among(names)
    files = {LOCK_NAME, *map(index_name, indexes), *map(segment_name, segments)}
    return names == files and all(file_size(folder / name) <= FILE_HEAD_BYTES for name in names - {LOCK_NAME})


def _at_row(segment: Segment, row: int) -> Attachment:
    with segment.open() as reader:
        return _place(segment, reader, row)


def _behind(segment: Segment) -> Attachment:
    with segment.open() as reader:
        return _place(segment, reader, len(reader.chunks()))


def _place(segment: Segment, reader: SegmentReader, row: int) -> Attachment:
    table = reader.chunks()
    chunk_id = int(table.chunk_id[row]) if row < len(table) else reader.next_chunk_id
    return Attachment(segment, row, chunk_id, chunk_id)


def _first_chunk_ids(folder: Path) -> set[int]:
    """First chunk ids of the complete pairs; none without a folder.

    A folder that grows while it is listed may show a new file and not the one made before it (readdir, POSIX), and a
    hole would look like retention. Pairs older than the newest of one listing all exist when the next listing begins.
    """
    return _pairs_of(_names(folder), _names(folder))


def _pairs_of(names: list[str], names_later: list[str]) -> set[int]:
    found, later = (set.intersection(*ids_among(each)) for each in (names, names_later))
    newest = max(found, default=-1)
    return {chunk_id for chunk_id in later if chunk_id <= newest} or ({min(later)} if later else set())


def _listed_pairs(folder: Path) -> list[int]:
    """First chunk ids of the pairs in a folder, ascending. Raises CorruptChunkError where a file is missing."""
    names, error = _names(folder), None
    while True:
        later = _names(folder)
        again = find_missing(folder, later)
        # Files may come and go while the folder is listed: a file counts as missing only in two listings.
        if again is None or str(again) == str(error):
            break
        names, error = later, again
    if again is not None:
        raise again
    return sorted(_pairs_of(names, later))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
