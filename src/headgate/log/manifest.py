"""Manifests: the chunks that one batch of one query appends, decided once by a rename.

    <root>/.headgate/commits/<query>/<batch>.json     a batch whose chunks are being appended
    <root>/.headgate/commits/<query>/completed.json   the manifest of the last batch that was appended everywhere
    <root>/.headgate/commits/.lock                    held while names are published, completed or removed

Once a manifest has its name, the batch consists of the chunks that it lists; completing it is another rename. Batches
of a query are numbered upwards: a number up to that of `completed.json` is done.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from headgate.errors import LogError
from headgate.log.checked_json import decode_checked_if_noted, encode_checked
from headgate.log.files import replace_file, storage_error, sync_folder
from headgate.log.root import STREAMS_FOLDER
from headgate.log.staging import PRIVATE_FOLDER, StagedChunks, folder_name, staging_folder

MANIFEST_FORMAT = 3
_READABLE_FORMATS = (2, MANIFEST_FORMAT)
"""Format 2 has no room at the head of staged files, so they are appended."""

SEQUENCE_BITS = 20
"""Publisher sequences are batch · 2^20 + number of the chunk among the batch's chunks for one stream."""

MAX_BATCH = (1 << (63 - SEQUENCE_BITS)) - 1

ONE_TIME_PREFIX = "once-"
"""Query ids with this prefix are used for one batch only: nothing of them is kept once the batch is done."""

_COMPLETED = "completed.json"


class BatchManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of all manifests; each type adds the content of a batch, and a `format`."""

    query: str
    batch: int


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The chunks that a batch appends to one stream, in order.

    `stream` is the stream's folder relative to the root. `identity` identifies the stream: another stream that is
    created in that folder later gets nothing of the batch. `filter_source` is the declaration under which the filter
    values were filled in, or None.
    """

    stream: str
    identity: str
    staged: tuple[StagedChunks, ...]
    filter_source: str | None = None

    @property
    def chunk_count(self) -> int:
        """Chunks of all staged files."""
        return sum(part.chunks for part in self.staged)


class Manifest(BatchManifest, frozen=True, forbid_unknown_fields=True, dict=True):
    """One batch: its outputs, and the time of its chunks. `durable`: its chunks are flushed before it is done."""

    timestamp_ms: int
    durable: bool
    outputs: tuple[Output, ...]
    format: int = MANIFEST_FORMAT

    @functools.cached_property
    def by_stream(self) -> dict[str, Output]:
        """The outputs with chunks, by stream; no stream has two."""
        return {output.stream: output for output in self.outputs if output.chunk_count}

    @property
    def first_sequence(self) -> int:
        """The sequence of the first chunk in each output."""
        return self.batch << SEQUENCE_BITS

    def last_sequence(self, output: Output) -> int:
        """The sequence of the last chunk of an output; one below the first if it has none."""
        return self.first_sequence + output.chunk_count - 1


def root_of(folder: Path) -> Path:
    """The root with the commits of a stream, by its real path: the parent of `streams/`, or of the stream's folder."""
    return folder.parent.parent if folder.parent.name == STREAMS_FOLDER else folder.parent


M = TypeVar("M", bound=BatchManifest)


class ManifestFolder(Generic[M]):
    """The manifests of one type, a struct of msgspec, in one folder. Any number of processes may use it."""

    __slots__ = ("_formats", "_type", "folder")

    def __init__(self, folder: Path, manifest_type: type[M], *, formats: tuple[int, ...]) -> None:
        self.folder = folder
        self._type = manifest_type
        self._formats = formats

    def query_folder(self, query: str) -> Path:
        """The folder with the manifests of a query."""
        return self.folder / folder_name(query)

    def completed(self, query: str) -> M | None:
        """The manifest of the last finished batch of a query; None if none is known."""
        return self._load(f"{self.query_folder(query)}/{_COMPLETED}")

    def find(self, query: str, batch: int) -> M | None:
        """The manifest of a batch that is published and not completed."""
        return self._load(str(self._path(query, batch)))

    def pending(self, query_folder: str | Path) -> list[M]:
        """The manifests of a query that are published and not completed, by batch; none if the folder is missing."""
        try:
            split = [name.rpartition(".") for name in os.listdir(query_folder)]
        except FileNotFoundError:
            return []
        batches = sorted(int(stem) for stem, _, ending in split if ending == "json" and stem.isdecimal())
        manifests = (self._load(f"{query_folder}/{batch}.json") for batch in batches)
        return [manifest for manifest in manifests if manifest is not None]

    def put(self, manifest: M, *, is_done: bool) -> None:
        """Publish a manifest under its name, or at once as the last completed one; under the lock."""
        path = self._path(manifest.query, manifest.batch)
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(self.folder)
        replace_file(path.parent / _COMPLETED if is_done else path, encode_checked(manifest))

    def complete(self, manifest: M) -> None:
        """Mark a batch as done, under the lock; marking it twice is harmless."""
        path = self._path(manifest.query, manifest.batch)
        if manifest.query.startswith(ONE_TIME_PREFIX):
            path.unlink(missing_ok=True)
            _remove_if_one_time(path.parent)
        else:
            with contextlib.suppress(FileNotFoundError):
                path.replace(path.parent / _COMPLETED)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Held while names are published, completed or removed. Raises LogError for errors of the file system."""
        descriptor = -1
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            # No limit on the wait: the lock is held for a few file operations only, and the kernel frees it at death.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise storage_error(error, self.folder) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _path(self, query: str, batch: int) -> Path:
        return self.query_folder(query) / f"{batch}.json"

    def _load(self, path: str) -> M | None:
        try:
            found = os.stat(path)
            manifest: M = _decoded(path, found.st_ino, found.st_mtime_ns, self._type, self._formats)
        except FileNotFoundError:
            return None
        return manifest


class Commits:
    """The manifests under one root. Any number of processes may use it at the same time."""

    __slots__ = ("_manifests", "folder", "root")

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.folder = self.root / PRIVATE_FOLDER / "commits"
        """The folder with the manifests of all queries."""
        self._manifests = ManifestFolder(self.folder, Manifest, formats=_READABLE_FORMATS)

    @staticmethod
    def of_stream(stream_path: Path) -> tuple[Commits, str]:
        """The commits of a stream folder, and its name in their outputs (`Output.stream`)."""
        folder = stream_path.resolve()
        commits = Commits(root_of(folder))
        return commits, folder.relative_to(commits.root).as_posix()

    def completed(self, query: str) -> int:
        """The last finished batch of a query; −1 if none is known."""
        manifest = self._manifests.completed(query)
        return -1 if manifest is None else manifest.batch

    def find(self, query: str, batch: int) -> Manifest | None:
        """The manifest of a batch that is published and not completed."""
        return self._manifests.find(query, batch)

    def pending(self) -> list[Manifest]:
        """All manifests that are published and not completed, by query and batch."""
        with contextlib.suppress(FileNotFoundError):
            folders = sorted(entry.path for entry in os.scandir(self.folder) if entry.is_dir())
            return [manifest for folder in folders for manifest in self._manifests.pending(folder)]
        return []

    def is_decided(self, query: str, batch: int) -> bool:
        """Whether a batch is published or completed."""
        return batch <= self.completed(query) or self.find(query, batch) is not None

    def publish(self, manifest: Manifest) -> bool:
        """Publish a manifest under its name; False, without a change, if its batch is published or completed already.

        A batch with no chunks is completed at once. Raises LogError if a staged file is missing or incomplete.
        """
        with self._manifests.lock():
            if self.is_decided(manifest.query, manifest.batch):
                return False
            for output in manifest.outputs:
                for part in output.staged:
                    part.check(self.root)
            is_empty = not any(output.chunk_count for output in manifest.outputs)
            if not (is_empty and manifest.query.startswith(ONE_TIME_PREFIX)):
                self._manifests.put(manifest, is_done=is_empty)
            return True

    def complete(self, manifest: Manifest) -> None:
        """Mark a batch as appended to all streams, and remove its staged files; doing it twice is harmless."""
        with self._manifests.lock():
            self._manifests.complete(manifest)
            self._remove(part for output in manifest.outputs for part in output.staged)

    def drop(self, staged: Iterable[StagedChunks], *, query: str) -> None:
        """Remove staged files of a query, except files that a manifest names."""
        with self._manifests.lock():
            named = self._named(self.folder / folder_name(query))
            self._remove(part for part in staged if part.path not in named)

    def clean(self, query: str, *, written_before_ns: int) -> int:
        """Remove older staged files of a query that no manifest names; returns the number of files."""
        with self._manifests.lock():
            return self._clean(staging_folder(self.root, query), written_before_ns)

    def clean_all(self, *, written_before_ns: int) -> int:
        """`clean` for all queries."""
        with self._manifests.lock(), contextlib.suppress(FileNotFoundError):
            folders = sorted(entry.path for entry in os.scandir(staging_folder(self.root)) if entry.is_dir())
            return sum(self._clean(Path(folder), written_before_ns) for folder in folders)
        return 0

    def _clean(self, staged: Path, written_before_ns: int) -> int:
        found = sorted(staged.iterdir()) if staged.is_dir() else []
        old = [path for path in found if path.stat().st_mtime_ns < written_before_ns]
        named = self._named(self.folder / staged.name) if old else set()
        unnamed = [path for path in old if path.relative_to(self.root).as_posix() not in named]
        for path in unnamed:
            path.unlink(missing_ok=True)
        _remove_if_one_time(staged)
        return len(unnamed)

    def _named(self, query_folder: Path) -> set[str]:
        manifests = self._manifests.pending(query_folder)
        return {part.path for manifest in manifests for output in manifest.outputs for part in output.staged}

    def _remove(self, staged: Iterable[StagedChunks]) -> None:
        by_folder: dict[str, set[str]] = {}
        for part in staged:
            folder, _, name = part.file(self.root).rpartition("/")
            by_folder.setdefault(folder, set()).add(name)
        for folder, names in by_folder.items():
            with contextlib.suppress(FileNotFoundError):
                # Listed first: most files of a batch are removed already, by the outputs that used them.
                for name in names.intersection(os.listdir(folder)):
                    Path(folder, name).unlink(missing_ok=True)
            _remove_if_one_time(Path(folder))


def _remove_if_one_time(query_folder: Path) -> None:
    # Another query's folder stays: its tasks may be about to open a file in it.
    if query_folder.name.startswith(ONE_TIME_PREFIX):
        with contextlib.suppress(OSError):
            query_folder.rmdir()


@functools.lru_cache(maxsize=8)
def _decoded(path: str, _inode: int, _modified_ns: int, manifest_type: Any, formats: tuple[int, ...]) -> Any:
    """The manifest at a path. Cached: it is read for every output of a batch, and never changes under its inode."""
    raw = Path(path).read_bytes()
    try:
        manifest = decode_checked_if_noted(raw, manifest_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LogError(f"not a manifest of a batch: {error}", path=path) from error
    if manifest.format not in formats:
        raise LogError(f"a manifest of format {manifest.format}, expected {max(formats)}", path=path)
    return manifest
