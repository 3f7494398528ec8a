"""Streams on object storage: their sealed segments are moved in the background, and then go from the folder.

Passes run in threads of their own (`Workers.transfers`), one at a time for a stream: a storage that is slow or fails
holds up no confirm and no reader. What a pass moved goes from the folder through the stream's writer, some segments at
a time. A pass that failed is tried again after a pause, which grows.
"""

from __future__ import annotations

import functools
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.broker.catalogue import Catalogue
from headgate.broker.environment import Environment
from headgate.broker.intervals import is_over
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.broker.stream import BrokerStream
from headgate.broker.stream_writes import StreamWrites
from headgate.errors import BrokerError, HeadgateError, LogError
from headgate.log import (
    RemoteState,
    Stream,
    Writer,
    has_local_to_release,
    list_streams,
    move_segments,
    remote_state,
)

LOOK_MS = 1_000
"""After this time a stream is looked at again."""
PASS_MS = 600_000
"""After this time there is another pass even if nothing was written, for the limits of age."""
SEARCH_MS = 3_600_000
"""After this time streams that only other processes use are looked for again."""
LONGEST_PAUSE_MS = 60_000

_OPENED_A_LOOK = 16
"""Limit: streams opened at a time; opening one takes milliseconds."""
_RELEASED_AT_ONCE = 4
"""Limit: segments deleted from a folder in one job, which publishers wait for."""

logger = logging.getLogger("headgate.broker")


@dataclass(slots=True)
class RemoteProgress:
    """How far a stream has moved, after the last pass (`state` None: there was none), and why the last one failed."""

    state: RemoteState | None = None
    error: str = ""
    failed_ms: int | None = None
    """When a pass failed last; it stays when the next one succeeds."""


@dataclass(slots=True)
class _Moved:
    """One stream. `seen_ns` is the time of its folder before the last pass."""

    progress: RemoteProgress
    is_running: bool = False
    seen_ns: int = -1
    ended_ms: int = 0
    failure: RepeatedFailure = field(default_factory=functools.partial(RepeatedFailure, LONGEST_PAUSE_MS))
    releases: bool = False
    """Whether files in the folder are to go."""


class RemoteMoves:
    """The moves of a broker's streams; all calls are made in the broker's thread. Without threads nothing is moved."""

    def __init__(self, environment: Environment, catalogue: Catalogue, writes: StreamWrites) -> None:
        self._root = environment.root
        self._now_ms = environment.now_ms
        self._watch = environment.watch
        self._run = environment.workers.transfers
        self._catalogue = catalogue
        self._writes = writes
        self._streams: dict[BrokerStream, _Moved] = {}
        self._unopened: deque[str] = deque()
        self._searched_ms: int | None = None
        self._is_closing = False

    def progress(self, stream: BrokerStream) -> RemoteProgress | None:
        """How far a stream has moved; None for one without a place in object storage."""
        if stream.stream.remote is None:
            return None
        moved = self._streams.get(stream)
        return RemoteProgress() if moved is None else moved.progress

    def close(self) -> None:
        """Begin nothing more; a pass under way ends soon, and another process may go on with it."""
        self._is_closing = True

    def tick(self, now_ms: int) -> None:
        """Begin the passes that are due, and release what they moved; called about once a second."""
        if self._run is None or self._is_closing:
            return
        self._search(now_ms)
        for stream in self._catalogue:
            if stream.stream.remote is not None:
                moved = self._streams.setdefault(stream, _Moved(RemoteProgress()))
                self._look(stream, moved, now_ms)
        for stream in [each for each in self._streams if each.is_deleted]:
            del self._streams[stream]

    def _search(self, now_ms: int) -> None:
        """Open streams with a remote that no client uses: at the start, and sometimes."""
        if self._searched_ms is None or is_over(self._searched_ms, SEARCH_MS, now_ms):
            self._searched_ms = now_ms
            found: list[str] = []

            def search() -> None:
                streams = list_streams(self._root, damaged=lambda _folder, _error: None)
                found.extend(stream.name for stream in streams if stream.remote is not None)

            self._begin(search, lambda _error: self._unopened.extend(found))
        for _ in range(min(_OPENED_A_LOOK, len(self._unopened))):
            name = self._unopened.popleft()
            try:
                self._catalogue.find(name)
            except HeadgateError as error:
                logger.warning("segments of stream %r are not moved to object storage: %s", name, error)

    def _look(self, stream: BrokerStream, moved: _Moved, now_ms: int) -> None:
        if moved.is_running:
            return
        if moved.releases:
            self._release(stream, moved, now_ms)
        is_early = not is_over(moved.ended_ms, LOOK_MS, now_ms) or moved.failure.rests(now_ms)
        if moved.seen_ns >= 0 and is_early:
            return
        state, folder_ns = moved.progress.state, _time_ns(stream)
        is_left = state is None or state.unmoved_bytes > 0
        if folder_ns != moved.seen_ns or is_left or is_over(moved.ended_ms, PASS_MS, now_ms):
            moved.seen_ns = folder_ns
            self._pass(stream, moved, now_ms)

    def _pass(self, stream: BrokerStream, moved: _Moved, now_ms: int) -> None:
        opened = Stream(stream.stream.path, stream.stream.settings)
        progress = moved.progress

        def work() -> None:
            try:
                move_segments(opened, now_ms=now_ms, goes_on=lambda: not self._is_closing)
            finally:
                progress.state = remote_state(opened)
                moved.releases = has_local_to_release(opened)

        def ended(error: BaseException | None) -> None:
            moved.is_running = False
            moved.ended_ms = self._now_ms()
            if error is None:
                moved.failure.clear()
            elif not isinstance(error, HeadgateError | OSError):
                raise error
            elif not stream.is_deleted and not self._is_closing:
                what = (
                    f"segments of stream {stream.name!r} are not moved to object storage, and stay in its folder until "
                    "that succeeds"
                )
                moved.failure.note(what, error, moved.ended_ms)
                progress.failed_ms = moved.ended_ms
            progress.error = moved.failure.text

        moved.is_running = True
        self._begin(work, ended)

    def _release(self, stream: BrokerStream, moved: _Moved, now_ms: int) -> None:
        """Delete files of moved segments through the stream's writer; later, if it is in use."""
        if stream.is_writing:
            return
        try:
            writer = stream.open_writer(now_ms=now_ms)
        except (BrokerError, LogError):
            # Another process writes the stream.
            return
        self._watch(stream)
        self._writes.run(stream, _Release(stream, writer, moved), in_worker=True)

    def _begin(self, work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
        assert self._run is not None
        self._run(work, ended)


class _Release:
    """Deletes some files of moved segments, with the writer of the stream."""

    def __init__(self, stream: BrokerStream, writer: Writer, moved: _Moved) -> None:
        self._stream = stream
        self._writer = writer
        self._moved = moved
        self._count = 0
        self._error: LogError | None = None

    def run(self) -> None:
        """Delete them; errors wait for `finish`."""
        try:
            self._count = self._writer.release_local(at_most=_RELEASED_AT_ONCE)
        except LogError as error:
            self._error = error

    def finish(self) -> None:
        """Readers find the segments in object storage from now on."""
        self._moved.releases = self._count == _RELEASED_AT_ONCE
        if self._error is not None:
            logger.warning("files of stream %r that are moved stay in its folder: %s", self._stream.name, self._error)
            if self._writer.is_broken:
                self._stream.close_writer()

    def abandon(self) -> None:
        """It is tried again after the next pass."""
        self._moved.releases = False


def _time_ns(stream: BrokerStream) -> int:
    try:
        return os.stat(stream.stream.path).st_mtime_ns
    except FileNotFoundError:
        return -1
