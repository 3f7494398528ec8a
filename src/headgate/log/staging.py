"""Staged chunks: whole chunks that wait in files of their own until a commit appends them to their stream.

    <root>/.headgate/staging/<query>/<name>-<random>.chunks

Tasks write them at the same time, without a lock; each attempt has a file of its own. Chunk id, timestamp, epoch and
publisher sequence are zero until the commit (`commit.py`) knows the place in the stream.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
import numpy as np

from headgate.columns import totals
from headgate.errors import ConfigError, LogError
from headgate.log.build import (
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
from headgate.log.files import DiskFile, OpenFile, WritableFile, storage_error, sync_folder
from headgate.log.format import CHUNK_HEADER_BYTES, ENTRY_HEAD_BYTES
from headgate.log.tracking import MAX_REFERENCE_BYTES

PRIVATE_FOLDER = ".headgate"
"""Folder of a root that holds what is no stream: staging, commits."""

_STAGING = "staging"

_NAME_CHARACTERS = 200


def folder_name(identifier: str) -> str:
    """A query id or a label as one name of the file system; ConfigError if it is empty or too long for that."""
    name = quote(identifier, safe="").replace(".", "%2E")
    if not name or len(name) > _NAME_CHARACTERS or len(identifier.encode()) > MAX_REFERENCE_BYTES:
        raise ConfigError(
            f"{identifier!r} cannot identify a query: it is empty or takes more than {_NAME_CHARACTERS} characters "
            f"as a file name ({len(name)})"
        )
    return name


def staging_folder(root: Path, query: str | None = None) -> Path:
    """Where staged chunks lie: those of one query, or the folder of all queries."""
    folder = root / PRIVATE_FOLDER / _STAGING
    return folder if query is None else folder / folder_name(query)


class StagedChunks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finished file of staged chunks; small, picklable, and JSON in a manifest. `path` counts from the root."""

    path: str
    chunks: int
    messages: int
    size_bytes: int

    def file(self, root: Path) -> str:
        """The file under a root; LogError if it is none that staging could have written."""
        path = f"{root}/{self.path}"
        parts = self.path.split("/")
        if len(parts) != 4 or parts[:2] != [PRIVATE_FOLDER, _STAGING] or not {"", ".", ".."}.isdisjoint(parts):
            raise LogError(f"a staged file lies under {staging_folder(root)}", path=path)
        return path

    def check(self, root: Path) -> None:
        """Raise LogError if the file is not there in full."""
        path = self.file(root)
        try:
            self._check_size(os.stat(path).st_size, path)
        except FileNotFoundError:
            raise _gone(path) from None

    @contextlib.contextmanager
    def open(self, root: Path) -> Iterator[int]:
        """A descriptor of the file, for reading; LogError if it is not there in full."""
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

    def _check_size(self, found: int, path: str) -> None:
        if found != self.size_bytes:
            raise LogError(f"a staged file has {found} bytes, expected {self.size_bytes}", path=path)


def _gone(path: str) -> LogError:
    return LogError(
        "a staged file is gone; if it cannot be brought back, remove the manifest under .headgate/commits that names "
        "it: its batch is lost then",
        path=path,
    )


class StagedFile:
    """Writes the chunks of one task for one stream.

    `name` helps people to tell files apart (stream, partition, attempt); it need not be unique. The file is created
    with the first chunk: a task without messages leaves nothing. Errors of the file system are LogErrors; after one, or
    when the task fails, call `discard`.
    """

    __slots__ = ("_builder", "_chunks", "_file", "_messages", "_name", "_open_file", "_path", "_size_bytes", "limits")

    def __init__(
        self,
        root: Path,
        *,
        query: str,
        name: str,
        filter_size_bytes: int,
        max_messages: int = MAX_MESSAGES,
        max_bytes: int = MAX_BYTES,
        open_file: OpenFile = DiskFile,
    ) -> None:
        file_name = f"{folder_name(name)}-{secrets.token_hex(8)}.chunks"
        self._name = f"{PRIVATE_FOLDER}/{_STAGING}/{folder_name(query)}/{file_name}"
        self._path = root / self._name
        self.limits = ChunkLimits(filter_size_bytes, query.encode(), max_messages, max_bytes)
        self._builder = ChunkBuilder(self.limits, self.add_chunks)
        self._open_file = open_file
        self._file: WritableFile | None = None
        self._chunks = 0
        self._messages = 0
        self._size_bytes = 0

    def add(
        self, data: Bytes, starts: Int64Array, lengths: Int64Array, filter_values: FilterValues | None = None
    ) -> None:
        """Add messages as for `build_chunks`; the buffers may be reused afterwards."""
        self._builder.add(data, starts, lengths, filter_values)

    def cut(self) -> None:
        """Make a chunk of the messages that wait for more, if any do."""
        self._builder.finish()

    def add_chunks(self, built: BuiltChunks) -> None:
        """Add chunks built elsewhere, with the query as their publisher."""
        if len(built):
            self._write(built.data, len(built), built.message_count)

    def _write(self, data: Bytes, chunks: int, messages: int) -> None:
        try:
            if self._file is None:
                self._file = self._created()
            self._file.write(data.data, self._size_bytes)
        except OSError as error:
            raise storage_error(error, self._path) from error
        self._chunks += chunks
        self._messages += messages
        self._size_bytes += len(data)

    def _created(self) -> WritableFile:
        try:
            return self._open_file(self._path)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._open_file(self._path)

    def finish(self, *, durable: bool) -> StagedChunks | None:
        """Write the last chunk and close; None if there was no message. `durable`: flush to the device."""
        self._builder.finish()
        if self._file is None:
            return None
        try:
            if durable:
                self._file.sync()
            self._file.close()
            self._file = None
            if durable:
                sync_folder(self._path.parent)
        except OSError as error:
            raise storage_error(error, self._path) from error
        return StagedChunks(self._name, self._chunks, self._messages, self._size_bytes)

    def discard(self) -> None:
        """Remove the file; for a task that failed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._path.unlink(missing_ok=True)


_ENOUGH_BYTES = 128 << 10
"""A share of a batch that is worth chunks of its own: waiting for more would cost two copies of its messages."""

_BUILT_BYTES = 4 << 20
"""Chunks built with one call: many enough for what a call costs, few enough to stay near the processor."""


def add_to_each(
    files: Sequence[StagedFile],
    bounds: Int64Array,
    data: Bytes,
    starts: Int64Array,
    lengths: Int64Array,
    filter_values: FilterValues,
) -> None:
    """Add the messages `bounds[i] … bounds[i + 1]` to file i: what `add` of each does, at once for all of them.

    `bounds` is `(files + 1,)`; the files have the same limits, ValueError if not. Where a share is large it is cut into
    chunks now, which may be smaller than the limits allow; a small one waits in its file.
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
        for file, cut in together:
            first, chunk = chunk, chunk + len(cut) - 1
            file._write(built.data[ends[first] : ends[chunk]], chunk - first, cut[-1] - cut[0])
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
