"""Staged chunks: whole chunks that wait in separate files until a commit appends them to their stream.

    <root>/.headgate/staging/<query>/<name>-<random>.chunks

Tasks write the files at the same time, without a lock; each attempt has separate files. Chunk id, timestamp, epoch and
publisher sequence are zero until the commit (`commit.py`) knows the position in the stream. A file for one stream has
free room at its head: if it is large, the commit makes it a segment of the stream (`adoption.py`). Many outputs of a
task share files: on some file systems creating and removing a file for each costs more than writing its content.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

import msgspec
import numpy as np

from headgate.arrays import totals
from headgate.errors import ConfigError, LogError
from headgate.log.chunk_builder import (
    MAX_BYTES,
    MAX_MESSAGES,
    BuiltChunks,
    Bytes,
    ChunkBuilder,
    ChunkLimits,
    FilterValues,
    Int64Array,
    build_chunks,
    chunk_boundaries,
)
from headgate.log.files import DiskFile, OpenFile, storage_error, sync_folder
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES, Compression
from headgate.log.settings import DEFAULT_MAX_SEGMENT_CHUNKS, DEFAULT_MAX_SEGMENT_SIZE_BYTES
from headgate.log.tracking_records import MAX_REFERENCE_BYTES

PRIVATE_FOLDER = ".headgate"
"""Folder of a root for everything that is not a stream: staging, commits."""

HEAD_BYTES = 64 << 10
"""Free room at the head of a separate file, for the head of a segment and a snapshot of some thousand records."""

_LEAST_HEADS = 16
_MOST_APPENDED_BYTES = 64 << 20

_STAGING = "staging"

_NAME_CHARACTERS = 200


def folder_name(identifier: str) -> str:
    """A query id or a label as a file name. Raises ConfigError if it is empty or too long."""
    name = quote(identifier, safe="").replace(".", "%2E")
    if not name or len(name) > _NAME_CHARACTERS or len(identifier.encode()) > MAX_REFERENCE_BYTES:
        raise ConfigError(
            f"{identifier!r} cannot identify a query: it is empty or takes more than {_NAME_CHARACTERS} characters "
            f"as a file name ({len(name)})"
        )
    return name


def staging_folder(root: Path, query: str | None = None) -> Path:
    """The folder of the staged chunks of one query, or of all queries."""
    folder = root / PRIVATE_FOLDER / _STAGING
    return folder if query is None else folder / folder_name(query)


def least_adopted_bytes(max_segment_size_bytes: int, staged: Sequence[StagedChunks] = ()) -> int:
    """The size from which on a staged file of an output becomes a segment; smaller ones are appended.

    An eighth of a segment, so that a stream has at most eight times as many segments as if all were appended; at most
    64 MiB, which are copied in a twentieth of a second. If the separate files are that large on average, smaller ones,
    such as the last of each task, become segments as well; only the free room at the head must be little beside them.
    """
    fewest = _LEAST_HEADS * HEAD_BYTES
    least = max(fewest, min(max_segment_size_bytes // 8, _MOST_APPENDED_BYTES))
    sizes = [part.size_bytes for part in staged if part.head_bytes]
    return fewest if sizes and sum(sizes) >= least * len(sizes) else least


class StagedChunks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The staged chunks of a task for one stream; small, picklable, and JSON in a manifest.

    `path` is relative to the root. `pieces` are the positions and sizes of whole chunks in a shared file, in order;
    without pieces the file has nothing but these chunks, behind `head_bytes` of free room. `size_bytes` is that of the
    chunks.
    """

    path: str
    chunks: int
    messages: int
    size_bytes: int
    pieces: tuple[tuple[int, int], ...] = ()
    head_bytes: int = 0

    def file(self, root: Path) -> str:
        """The file under a root. Raises LogError for a path that staging cannot have written."""
        path = f"{root}/{self.path}"
        parts = self.path.split("/")
        if len(parts) != 4 or parts[:2] != [PRIVATE_FOLDER, _STAGING] or not {"", ".", ".."}.isdisjoint(parts):
            raise LogError(f"a staged file lies under {staging_folder(root)}", path=path)
        return path

    def check(self, root: Path) -> None:
        """Raise LogError if the file is missing or incomplete."""
        path = self.file(root)
        try:
            self._check_size(os.stat(path).st_size, path)
        except FileNotFoundError:
            raise _gone(path) from None

    @contextlib.contextmanager
    def open(self, root: Path) -> Iterator[int]:
        """A descriptor of the file, for reading. Raises LogError if it is missing or incomplete."""
        path = self.file(root)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _gone(path) from None
        try:
            self._check_size(os.fstat(descriptor).st_size, path)
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, descriptor: int, target: Bytes, position: int) -> int:
        """Read staged bytes from `position` on into `target`; returns the number of bytes read, fewer at the end.

        Positions are counted from the first chunk on.
        """
        if not self.pieces:
            return os.preadv(descriptor, [target.data], self.head_bytes + position)
        done = 0
        for start, size in self.pieces:
            if done == len(target):
                break
            if position >= size:
                position -= size
                continue
            wanted = min(size - position, len(target) - done)
            found = os.preadv(descriptor, [target.data[done : done + wanted]], start + position)
            done += found
            if found < wanted:
                break
            position = 0
        return done

    def _check_size(self, found: int, path: str) -> None:
        needed = sum(self.pieces[-1]) if self.pieces else self.head_bytes + self.size_bytes
        if found < needed or (found > needed and not self.pieces):
            raise LogError(f"a staged file has {found} bytes, expected {needed}", path=path)


def _gone(path: str) -> LogError:
    return LogError(
        "a staged file is gone; if it cannot be brought back, remove the manifest under .headgate/commits that names "
        "it: its batch is lost then",
        path=path,
    )


class StagingFile:
    """A file that a task writes staged chunks into, for one stream or for several.

    `name` helps people to tell files apart (stream, partition, attempt); it need not be unique. The file is created
    with the first chunk: a task without messages leaves no file. The first chunk lies behind `head_bytes` of free room,
    which take no space on the disk. Methods raise LogError for errors of the file system; after an error, or when the
    task fails, call `discard`.
    """

    __slots__ = ("_file", "_open_file", "_path", "name", "size_bytes")

    def __init__(
        self, root: Path, *, query: str, name: str, open_file: OpenFile = DiskFile, head_bytes: int = 0
    ) -> None:
        file_name = f"{folder_name(name)}-{secrets.token_hex(8)}.chunks"
        self.name = f"{PRIVATE_FOLDER}/{_STAGING}/{folder_name(query)}/{file_name}"
        """Its path relative to the root."""
        self.size_bytes = head_bytes
        self._path = root / self.name
        self._open_file = open_file
        self._file: DiskFile | None = None

    def write(self, data: Bytes) -> int:
        """Append bytes; returns their position."""
        position = self.size_bytes
        try:
            if self._file is None:
                self._file = self._created()
            self._file.write(data.data, position)
        except OSError as error:
            raise storage_error(error, self._path) from error
        self.size_bytes += len(data)
        return position

    def _created(self) -> DiskFile:
        try:
            return self._open_file(self._path)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._open_file(self._path)

    def finish(self, *, durable: bool) -> None:
        """Close the file; closing twice is harmless. `durable`: flush it to the device."""
        if self._file is None:
            return
        try:
            if durable:
                self._file.sync()
            self._file.close()
            self._file = None
            if durable:
                sync_folder(self._path.parent)
        except OSError as error:
            raise storage_error(error, self._path) from error

    def discard(self) -> None:
        """Remove the file; for a task that failed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._path.unlink(missing_ok=True)


class StagedFile:
    """Writes the chunks of one task for one stream, into separate files, or into the shared `file`.

    `max_file_bytes` and `max_file_chunks` are the limits of the stream's segments: a separate file ends where a segment
    would, so that it can become one. `name` and errors as in `StagingFile`. A caller that gives `file` finishes it
    after all outputs that share it.
    """

    __slots__ = (
        "_becomes_segments",
        "_builder",
        "_chunks",
        "_file",
        "_full",
        "_head_bytes",
        "_is_own",
        "_max_file_bytes",
        "_max_file_chunks",
        "_messages",
        "_new_file",
        "_pieces",
        "limits",
    )

    def __init__(
        self,
        root: Path,
        *,
        query: str,
        name: str,
        filter_size_bytes: int,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        max_file_bytes: int = DEFAULT_MAX_SEGMENT_SIZE_BYTES,
        max_file_chunks: int = DEFAULT_MAX_SEGMENT_CHUNKS,
        compression: Compression = Compression.NONE,
        open_file: OpenFile = DiskFile,
        file: StagingFile | None = None,
    ) -> None:
        self._is_own = file is None
        self._becomes_segments = self._is_own and least_adopted_bytes(max_file_bytes) <= max_file_bytes
        self._head_bytes = HEAD_BYTES if self._becomes_segments else 0
        self._new_file = partial(
            StagingFile, root, query=query, name=name, open_file=open_file, head_bytes=self._head_bytes
        )
        self._file = self._new_file() if file is None else file
        self._full: list[tuple[StagingFile, StagedChunks]] = []
        # A segment has its snapshot beside these chunks.
        self._max_file_bytes, self._max_file_chunks = max_file_bytes, max_file_chunks - 1
        self.limits = ChunkLimits(filter_size_bytes, query.encode(), max_messages, max_bytes, compression)
        self._builder = ChunkBuilder(self.limits, self.add_chunks)
        self._pieces: list[tuple[int, int]] = []
        self._chunks = 0
        self._messages = 0

    def add(
        self, data: Bytes, starts: Int64Array, lengths: Int64Array, filter_values: FilterValues | None = None
    ) -> None:
        """Add messages as for `build_chunks`; the buffers may be reused afterwards."""
        self._builder.add(data, starts, lengths, filter_values)

    def cut(self) -> None:
        """Make a chunk of the pending messages, if any."""
        self._builder.finish()

    def add_chunks(self, built: BuiltChunks) -> None:
        """Add chunks built elsewhere, with the query as their publisher."""
        first = 0
        while first < len(built):
            count = self._fitting(built.positions[first:]) if self._becomes_segments else len(built)
            if not count:
                self._full.append((self._file, self._staged()))
                self._file = self._new_file()
                self._pieces, self._chunks, self._messages = [], 0, 0
                continue
            part = built if count == len(built) else built.part(first, first + count)
            self._wrote(self._file.write(part.data), len(part.data), count, part.message_count)
            first += count

    def _fitting(self, positions: Int64Array) -> int:
        """The number of chunks, at these positions of a buffer, that the file takes before it is full."""
        room = self._max_file_bytes - self._file.size_bytes
        fitting = int(np.searchsorted(positions, positions[0] + room, side="left"))
        count = max(0, min(fitting, self._max_file_chunks - self._chunks))
        return count if self._chunks else max(1, count)

    def _wrote(self, position: int, size: int, chunks: int, messages: int) -> None:
        if self._pieces and sum(self._pieces[-1]) == position:
            position, before = self._pieces.pop()
            size += before
        self._pieces.append((position, size))
        self._chunks += chunks
        self._messages += messages

    def finish(self, *, durable: bool) -> tuple[StagedChunks, ...]:
        """Write the last chunk, and close separate files; none without messages. `durable`: flush them to the device.

        The chunks of each file, in order.
        """
        self._builder.finish()
        files = [file for file, _ in self._full]
        for file in [*files, self._file] if self._is_own else []:
            file.finish(durable=durable)
        staged = [staged for _, staged in self._full]
        return (*staged, self._staged()) if self._pieces else tuple(staged)

    def _staged(self) -> StagedChunks:
        """The chunks of the last file."""
        size_bytes = sum(size for _, size in self._pieces)
        if self._is_own:
            return StagedChunks(self._file.name, self._chunks, self._messages, size_bytes, head_bytes=self._head_bytes)
        return StagedChunks(self._file.name, self._chunks, self._messages, size_bytes, tuple(self._pieces))

    def discard(self) -> None:
        """Remove the files, with all chunks that share the last one; for a failed task."""
        for file in [*(file for file, _ in self._full), self._file]:
            file.discard()


_ENOUGH_BYTES = 128 << 10
"""From this size on, a part of a batch becomes chunks at once: waiting would cost two copies of its messages."""

_BUILT_BYTES = 4 << 20
"""Limit: bytes of chunks built with one call. Many enough to outweigh a call's cost, few enough for the cache."""


def add_to_each(
    files: Sequence[StagedFile],
    bounds: Int64Array,
    data: Bytes,
    starts: Int64Array,
    lengths: Int64Array,
    filter_values: FilterValues,
) -> None:
    """Add the messages `bounds[i] … bounds[i + 1]` to file i, like `add` of each file, but at once for all of them.

    `bounds` is `(files + 1,)`. A large part is cut into chunks now, which may be smaller than the limits allow; a small
    part waits in its file. Raises ValueError unless all files have the same limits.
    """
    if not files:
        return
    limits = files[0].limits
    if any(file.limits != limits for file in files):
        raise ValueError("files of other limits have chunks of another form")
    sizes = totals(lengths, bounds) + ENTRY_HEAD_BYTES * np.diff(bounds)
    fixed = CHUNK_HEADER_BYTES + limits.filter_size_bytes + len(limits.trailer)
    room = np.empty(_BUILT_BYTES, dtype=np.uint8)
    together: list[tuple[StagedFile, list[int]]] = []
    room_taken = 0

    def build() -> None:
        if not together:
            return
        cuts = np.array([place for _, cut in together for place in cut[:-1]] + together[-1][1][-1:])
        rows = slice(int(cuts[0]), int(cuts[-1]))
        values = filter_values.slice(rows.start, rows.stop)
        built = build_chunks(data, starts[rows], lengths[rows], values, limits, boundaries=cuts - cuts[0], target=room)
        ends = [*built.positions.tolist(), len(built.data)]
        chunk = 0
        for _, neighbours in groupby(together, key=lambda pair: id(pair[0]._file)):
            counts = [(file, len(cut) - 1, cut[-1] - cut[0]) for file, cut in neighbours]
            behind = chunk + sum(chunks for _, chunks, _ in counts)
            if counts[0][0]._is_own:
                counts[0][0].add_chunks(built.part(chunk, behind))
                chunk = behind
                continue
            start, stop = ends[chunk], ends[behind]
            # One write, so that the file lies in large pages: the commit asks for such when it is removed.
            position = counts[0][0]._file.write(built.data[start:stop]) - start
            for file, chunks, messages in counts:
                first, chunk = chunk, chunk + chunks
                file._wrote(position + ends[first], ends[chunk] - ends[first], chunks, messages)
        together.clear()

    for file, first, stop, size in zip(files, bounds[:-1].tolist(), bounds[1:].tolist(), sizes.tolist(), strict=True):
        if size < _ENOUGH_BYTES:
            build()
            room_taken = 0
            file.add(data, starts[first:stop], lengths[first:stop], filter_values.slice(first, stop))
            continue
        file.cut()
        if size <= limits.max_bytes and stop - first <= limits.max_messages:
            cut = [first, stop]
        else:
            cut = (first + chunk_boundaries(lengths[first:stop], limits)).tolist()
        room_taken += size + fixed * (len(cut) - 1)
        if room_taken > len(room):
            build()
            room_taken = size + fixed * (len(cut) - 1)
        together.append((file, cut))
    build()
