"""Keeping match indexes up while streams are written: for streams whose registry says `calculate_filter_bitmap`.

Each second a worker decides the chunks that came meanwhile, from the file, where they are in the page cache, and
appends their results. What filters lack that came later is filled in when nothing is new. What a broker did not get to
when it ended, and segments from before, are built by `headgate index build`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from headgate.broker.stream import BrokerStream
from headgate.errors import HeadgateError
from headgate.log import Stream
from headgate.scan.match_index import REGISTRY_NAME, GrowingIndex

logger = logging.getLogger("headgate.broker")

RETRY_MS = 10_000
"""What could not be indexed is tried again after so long."""

RunInWorker = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs its first argument in another thread, and calls the second in the broker's with None or the error."""


def run_here(work: Callable[[], None], ended: Callable[[BaseException | None], None]) -> None:
    """For a broker without workers."""
    try:
        work()
    except Exception as error:
        ended(error)
    else:
        ended(None)


@dataclass(slots=True)
class _Indexed:
    """The index of one stream; `growing` is the worker's while `is_running`."""

    growing: GrowingIndex
    not_before_ms: int = 0
    is_running: bool = False
    has_more: bool = False
    trouble: str = ""


class Indexing:
    """The match indexes of the streams that a broker writes; all calls are made in the broker's thread."""

    def __init__(self, *, now_ms: Callable[[], int], run_in_worker: RunInWorker) -> None:
        self._now_ms = now_ms
        self._run_in_worker = run_in_worker
        self._indexed: dict[BrokerStream, _Indexed] = {}

    def begin(self, stream: BrokerStream) -> None:
        """A stream is written from here on."""
        if stream not in self._indexed:
            opened = Stream(stream.stream.path, stream.stream.settings)
            self._indexed[stream] = _Indexed(GrowingIndex(opened, stream.next_offset))

    def tick(self, now_ms: int) -> None:
        """Index what came; about once a second."""
        for stream, state in list(self._indexed.items()):
            if state.is_running:
                continue
            growing = state.growing
            is_behind = growing.offset < stream.next_offset
            if is_behind and not growing.is_wanted and not (stream.stream.path / REGISTRY_NAME).exists():
                growing.offset, is_behind = stream.next_offset, False
            is_due = is_behind or state.has_more
            if stream.is_deleted or (stream.writer is None and not is_due):
                growing.close()
                del self._indexed[stream]
            elif is_due and now_ms >= state.not_before_ms:
                self._step(stream, state)

    def close(self) -> None:
        """Close the files that no worker uses."""
        for state in self._indexed.values():
            if not state.is_running:
                state.growing.close()

    def _step(self, stream: BrokerStream, state: _Indexed) -> None:
        stop = stream.next_offset

        def work() -> None:
            state.has_more = state.growing.step(stop)

        def ended(error: BaseException | None) -> None:
            state.is_running = False
            if error is None:
                state.trouble = ""
                if state.has_more and not stream.is_deleted:
                    # Behind what other streams have waiting.
                    self._step(stream, state)
                return
            if not isinstance(error, HeadgateError | OSError):
                raise error
            state.not_before_ms = self._now_ms() + RETRY_MS
            if not stream.is_deleted and str(error) != state.trouble:
                state.trouble = str(error)
                logger.warning("the match index of stream %r is not kept up: %s", stream.name, error)

        state.is_running = True
        self._run_in_worker(work, ended)
