"""Appending staged chunks exactly once: all outputs of one batch of one query.

1. `StagedFile` (staging.py): tasks write whole chunks to separate files, each for one output or for several.
2. `Commits.publish` (manifest.py): one rename decides which of these files are the batch, and in which order.
3. `finish_pending` (roll_forward.py): under each stream's lock the chunks are appended, numbered (query, batch · 2^20 +
   n) in their trailers; `stream.json` keeps the last number where trailers might lose it. A staged file is removed when
   all its chunks are appended. Many outputs are appended by `Helpers`, each for a share of the streams.
4. `Commits.complete`: the manifest becomes the query's `completed.json`.

Every writer that opens a stream of a published batch finishes the batch. A second commit of a batch drops its own
staged files and, if necessary, finishes the batch that the first one decided.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headgate.errors import ConfigError, LogError, StreamFullError
from headgate.log.crash_points import CommitStep, reached
from headgate.log.files import DiskFile, OpenFile
from headgate.log.lock import Wait, no_wait
from headgate.log.manifest import MAX_BATCH, SEQUENCE_BITS, Commits, Manifest, Output
from headgate.log.pin import full_error, read_pin
from headgate.log.retention import pinned_bytes
from headgate.log.roll_forward import copied_bytes
from headgate.log.settings import check_identity
from headgate.log.staging import StagedChunks
from headgate.log.stream import Stream
from headgate.log.writer import Writer

_FLUSHING_THREADS = 8
_MOST_COPYING_THREADS = 4
_COPYING_FROM_BYTES = 1 << 20
"""From this many bytes per output on, most time goes into the system's copies, which do not hold the interpreter."""

_SHARED_FROM = 256
"""From this many outputs on, or mebibytes that must be copied, helpers append.

Each takes a process about a millisecond; asking helpers takes a tenth of a second, and half of the rest is gained with
only two of them.
"""

LEFTOVERS_KEPT_MS = 7 * 24 * 3600 * 1000
"""How long staged files that no manifest names are kept, of any query."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Result of `commit_batch`. `repeated`: the batch was decided before, and the given staged files were dropped.

    The counts are those of the given staged files.
    """

    repeated: bool
    chunks: int
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """A batch that is decided, its streams cut into at most `shares` parts. Small and picklable."""

    root: Path
    query: str
    batch: int
    now_ms: int
    shares: int

    def append(self, share: int, *, wait: Wait = no_wait, open_file: OpenFile = DiskFile) -> int:
        """Append the missing chunks of one share, in any process; gives the number of its streams.

        Staged files that are appended are removed. Appending twice, also at the same time, is harmless; a batch that is
        completed gives 0. Raises as `commit_batch`, once all other streams of the share are appended.
        """
        commits = Commits(self.root)
        decided = commits.find(self.query, self.batch)
        shares = [] if decided is None else _shares(decided, self.shares)
        if decided is None or share >= len(shares):
            return 0
        streams = shares[share]
        # Other shares are appended beside this one, so it takes no more threads than its flushes need.
        threads = _FLUSHING_THREADS if decided.durable else 1
        _append(commits, decided, streams, {}, threads=threads, now_ms=self.now_ms, wait=wait, open_file=open_file)
        return len(streams)


@dataclass(frozen=True, slots=True)
class Helpers:
    """Processes that append the shares of a batch side by side, while the process that commits waits.

    `run` appends the shares and gives the number of streams that have all chunks. It may fail without an error: unless
    these are all streams, the process that commits appends what is missing.
    """

    count: int
    run: Callable[[PublishedBatch], int]


def output_of(
    root: Path,
    stream: Path,
    staged: Sequence[StagedChunks | None],
    *,
    identity: str,
    filter_source: str | None = None,
) -> Output:
    """The staged chunks that a batch appends to the stream in a folder, in order; None stands for an empty task.

    `identity` is that of the stream for which they were staged. Both paths are real paths, without links. Raises
    ConfigError for a stream outside the root, from which the manifest could not be found.
    """
    try:
        name = stream.relative_to(root).as_posix()
    except ValueError:
        raise ConfigError(f"stream {stream} lies outside the root {root}; outputs of one batch share a root") from None
    return Output(name, identity, tuple(part for part in staged if part is not None), filter_source)


def commit_batch(
    root: Path,
    *,
    query: str,
    batch: int,
    outputs: Sequence[Output],
    now_ms: int,
    durable: bool,
    wait: Wait = no_wait,
    open_file: OpenFile = DiskFile,
    helpers: Helpers | None = None,
) -> Committed:
    """Append the outputs of a batch to their streams, exactly once, even if processes die meanwhile.

    Batches of a query are numbered upwards from 0; the pair (query, batch) identifies a commit.
    `now_ms` becomes the chunks' time. `durable`: the result survives a power loss (if the files were staged durably).
    `wait` is for the locks of the streams. `helpers` append if there is enough to do. After an error the batch may be
    decided or not: commit it again, or `abort_batch` and stage it again; nothing is appended twice. Staged files of
    earlier attempts are removed by the commit that decides a batch, so no later one may be staged before it. Raises
    ConfigError for outputs that cannot be numbered, StreamNotFoundError, StreamReplacedError if an output was staged
    for a stream that was created again since, StreamFullError, before the batch is decided, StreamLockedError and the
    errors of appending. A decided output whose stream was deleted counts as done.
    """
    _check(query, batch, outputs)
    commits = Commits(root)
    streams = {output.stream: _opened(commits.root, output) for output in outputs}
    full = _first_full(streams[output.stream] for output in outputs if output.chunk_count)
    if full is not None and not commits.is_decided(query, batch):
        raise full
    reached(CommitStep.STAGED)
    parts = [part for output in outputs for part in output.staged]
    first_written_ns = _first_written_ns(commits.root, parts)
    manifest = Manifest(query, batch, now_ms, durable, tuple(outputs))
    published = commits.publish(manifest)
    reached(CommitStep.PUBLISHED)
    if not published:
        commits.drop(parts, query=query)
    decided = commits.find(query, batch)
    if decided is not None:
        if helpers is None or not _is_appended(helpers, commits.root, decided, streams, now_ms=now_ms):
            _append(
                commits,
                decided,
                decided.by_stream,
                streams,
                threads=_threads(decided),
                now_ms=now_ms,
                wait=wait,
                open_file=open_file,
            )
        reached(CommitStep.FINISHED)
        commits.complete(decided)
        reached(CommitStep.COMPLETED)
    if published:
        # An attempt that died wrote its files before this attempt wrote its first one. Where the batch was published
        # before, another driver may have staged the next one since.
        commits.clean(query, written_before_ns=first_written_ns)
    commits.clean_all(written_before_ns=(now_ms - LEFTOVERS_KEPT_MS) * 1_000_000)
    return Committed(
        repeated=not published,
        chunks=sum(part.chunks for part in parts),
        messages=sum(part.messages for part in parts),
        size_bytes=sum(part.size_bytes for part in parts),
    )


def _opened(root: Path, output: Output) -> Stream:
    folder = root / output.stream
    stream = Stream.open(folder)
    if stream.identity != output.identity:
        check_identity(folder, output.identity, name=stream.name)
    return stream


def _first_full(streams: Iterable[Stream]) -> StreamFullError | None:
    """The error for the first full stream, which takes no messages until some are settled; None if none is full."""
    for stream in streams:
        pin = read_pin(stream.path)
        if pin is not None and (held_bytes := pinned_bytes(stream, pin)) >= pin.quota_bytes:
            return full_error(stream.path, pin, held_bytes)
    return None


def _is_appended(helpers: Helpers, root: Path, decided: Manifest, opened: Mapping[str, Stream], *, now_ms: int) -> bool:
    """Let helpers append if that pays; whether every stream has all chunks then."""
    shares = len(_shares(decided, helpers.count))
    if shares < 2 or _cost(decided, opened) < _SHARED_FROM:
        return False
    return helpers.run(PublishedBatch(root, decided.query, decided.batch, now_ms, shares)) == len(decided.by_stream)


def _cost(decided: Manifest, opened: Mapping[str, Stream]) -> int:
    """What appending costs, counted in outputs: a mebibyte that is copied costs as much as an output."""
    copied = 0
    for name, output in decided.by_stream.items():
        settings = opened[name].settings if name in opened else None
        copied += 0 if settings is None else copied_bytes(output, settings.arguments.max_segment_size_bytes)
    return len(decided.by_stream) + (copied >> 20)


def _shares(decided: Manifest, count: int) -> list[list[str]]:
    """The streams of a batch in at most `count` parts of neighbours, about as many in each.

    No staged file has chunks for two parts, so the process that appends a part removes the files of it.
    """
    last_use = {part.path: row for row, output in enumerate(decided.by_stream.values()) for part in output.staged}
    together: list[list[str]] = [[]]
    stop = 0
    for row, (name, output) in enumerate(decided.by_stream.items()):
        together[-1].append(name)
        stop = max(stop, *(last_use[part.path] for part in output.staged))
        if row == stop:
            together.append([])
            stop += 1
    del together[-1]
    count = min(count, len(together))
    bounds = [len(together) * share // count for share in range(count + 1)]
    return [[name for names in together[first:end] for name in names] for first, end in pairwise(bounds)]


def _append(
    commits: Commits,
    decided: Manifest,
    streams: Collection[str],
    opened: Mapping[str, Stream],
    *,
    threads: int,
    now_ms: int,
    wait: Wait,
    open_file: OpenFile,
) -> None:
    """Finish the outputs for some streams of a batch, even if others fail; `opened` are streams that are open already.

    No output for another stream has a staged file in common with these.
    """

    uses = Counter(part.path for name in streams for part in decided.by_stream[name].staged)
    lock = threading.Lock()
    removals: list[Future[None]] = []

    def remove(part: StagedChunks) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part.file(commits.root))

    def append(name: str) -> LogError | None:
        try:
            stream = opened.get(name) or Stream.open(commits.root / name)
            Writer.finish(stream, commits, name, decided, now_ms=now_ms, wait=wait, open_file=open_file)
        except LogError as error:
            return error
        # A staged file is removed as soon as it is no longer needed: the next appends reuse its memory, which on some
        # machines costs a tenth of fresh memory from the system.
        for part in decided.by_stream[name].staged:
            with lock:
                uses[part.path] -= 1
                is_last = not uses[part.path]
            if is_last:
                removals.append(removing.submit(remove, part))
        return None

    with (
        # A separate thread removes it: some file systems wait for the device at each extent of a removed file.
        ThreadPoolExecutor(max_workers=1) as removing,
        ThreadPoolExecutor(max_workers=threads) as appending,
    ):
        errors = list(appending.map(append, streams))
    for error in errors:
        if error is not None:
            raise error
    for removal in removals:
        removal.result()


def _threads(decided: Manifest) -> int:
    """The number of outputs of a batch that are appended at the same time."""
    if decided.durable:
        # Flushes wait for the device, and several at once cost as much as one.
        return _FLUSHING_THREADS
    outputs = decided.by_stream.values()
    if sum(part.size_bytes for output in outputs for part in output.staged) < _COPYING_FROM_BYTES * len(outputs):
        # Threads would only contend for the interpreter lock, at each of some sixty short system calls.
        return 1
    return min(os.cpu_count() or 1, _MOST_COPYING_THREADS)


def abort_batch(root: Path, *, query: str, staged: Sequence[StagedChunks | None]) -> None:
    """Remove staged files of an abandoned batch, except files that a manifest names: these are decided."""
    Commits(root).drop((part for part in staged if part is not None), query=query)


def _first_written_ns(root: Path, parts: Sequence[StagedChunks]) -> int:
    """When the first of the staged files was written; 0 if none exists (a repeated commit of a finished batch)."""
    times = []
    for path in {part.file(root) for part in parts}:
        with contextlib.suppress(FileNotFoundError):
            times.append(os.stat(path).st_mtime_ns)
    return min(times, default=0)


def _check(query: str, batch: int, outputs: Sequence[Output]) -> None:
    if not 0 <= batch <= MAX_BATCH:
        raise ConfigError(f"batch {batch} of query {query!r}; expected 0 to {MAX_BATCH}")
    streams = [output.stream for output in outputs]
    if len(set(streams)) < len(streams):
        raise ConfigError(f"batch {batch} of query {query!r} has two outputs to one stream: {streams}")
    for output in outputs:
        if output.chunk_count > 1 << SEQUENCE_BITS:
            raise ConfigError(
                f"batch {batch} of query {query!r} has {output.chunk_count} chunks for {output.stream}; "
                f"at most {1 << SEQUENCE_BITS} can be numbered: make smaller batches"
            )
