"""Staged chunks: whole chunks that wait in files of their own until a commit appends them to their stream.

    <root>/.headgate/staging/<query>/<name>-<random>.chunks

Tasks write them at the same time, without a lock; each attempt has a file of its own. Chunk id, timestamp, epoch and
publisher sequence are zero until the commit (`commit.py`) knows the place in the stream.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from urllib.parse import quote

import msgspec

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
)
from headgate.log.files import DiskFile, OpenFile, WritableFile, storage_error, sync_folder
from headgate.log.tracking import MAX_REFERENCE_BYTES

PRIVATE_FOLDER = ".headgate"
"""Folder of a root that holds what is no stream: staging, commits."""

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
    folder = root / PRIVATE_FOLDER / "staging"
    return folder if query is None else folder / folder_name(query)


class StagedChunks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finished file of staged chunks; small, picklable, and JSON in a manifest. `path` counts from the root."""

    path: str
    chunks: int
    messages: int
    size_bytes: int

    def file(self, root: Path) -> Path:
        """The file under a root; LogError if it is none that staging could have written."""
        path = root / self.path
        if path.parent.parent != staging_folder(root) or ".." in path.parts:
            raise LogError(f"a staged file lies under {staging_folder(root)}", path=path)
        return path

    def check(self, root: Path) -> Path:
        """`file`, or LogError if it is not there in full."""
        path = self.file(root)
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise LogError(
                "a staged file is gone; if it cannot be brought back, remove the manifest under .headgate/commits that "
                "names it: its batch is lost then",
                path=path,
            ) from None
        if found != self.size_bytes:
            raise LogError(f"a staged file has {found} bytes, expected {self.size_bytes}", path=path)
        return path


class StagedFile:
    """Writes the chunks of one task for one stream.

    `name` helps people to tell files apart (stream, partition, attempt); it need not be unique. The file is created
    with the first chunk: a task without messages leaves nothing. Errors of the file system are LogErrors; after one, or
    when the task fails, call `discard`.
    """

    __slots__ = ("_builder", "_chunks", "_file", "_messages", "_open_file", "_path", "_root", "_size_bytes")

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
        self._root = root.resolve()
        self._path = staging_folder(self._root, query) / f"{folder_name(name)}-{secrets.token_hex(8)}.chunks"
        limits = ChunkLimits(filter_size_bytes, query.encode(), max_messages, max_bytes)
        self._builder = ChunkBuilder(limits, self.add_chunks)
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

    def add_chunks(self, built: BuiltChunks) -> None:
        """Add chunks built elsewhere, with the query as their publisher."""
        if not len(built):
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._open_file(self._path)
            self._file.write(built.data.data, self._size_bytes)
        except OSError as error:
            raise storage_error(error, self._path) from error
        self._chunks += len(built)
        self._messages += built.message_count
        self._size_bytes += len(built.data)

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
        path = self._path.relative_to(self._root).as_posix()
        return StagedChunks(path, self._chunks, self._messages, self._size_bytes)

    def discard(self) -> None:
        """Remove the file; for a task that failed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._path.unlink(missing_ok=True)
