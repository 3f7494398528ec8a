"""Keeping match indexes up while streams are written: for streams whose registry says `calculate_filter_bitmap`.

Chunks are decided some seconds after they came, in a worker: who reads at the tail has them before an index could
help, and a sidecar is replaced as a whole, which is not for every chunk. What a broker did not get to when it ended,
and segments from before, are built by `headgate index build`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from headgate.broker.stream import BrokerStream
from headgate.errors import HeadgateError
from headgate.log import Stream
from headgate.scan.match_index import REGISTRY_NAME, FilterRegistry, build_index

logger = logging.getLogger("headgate.broker")

INDEX_MS = 2_000
"""From the end of one build to the next of the same stream at least."""
_REST = 9
"""A stream is not built for so many times as long as its last build took: a tenth of one core, however it grows."""

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
    """How far the index of a stream is kept: `offset` is behind what was looked at, or there before we wrote."""

    offset: int
    not_before_ms: int = 0
    is_running: bool = False
    trouble: str = ""


class Indexing:
    """The match indexes of the streams that a broker writes; all calls are made in the broker's thread."""

    def __init__(self, *, now_ms: Callable[[], int], run_in_worker: RunInWorker) -> None:
        self._now_ms = now_ms
        self._run_in_worker = run_in_worker
        self._indexed: dict[BrokerStream, _Indexed] = {}

    def begin(self, stream: BrokerStream) -> None:
        """A stream is written from here on."""
        self._indexed.setdefault(stream, _Indexed(stream.next_offset))

    def tick(self, now_ms: int) -> None:
        """Build what is due; about once a second."""
        for stream, state in list(self._indexed.items()):
            if state.is_running:
                continue
            if state.offset < stream.next_offset and not (stream.stream.path / REGISTRY_NAME).exists():
                state.offset = stream.next_offset
            if stream.is_deleted or (stream.writer is None and state.offset >= stream.next_offset):
                del self._indexed[stream]
            elif state.offset < stream.next_offset and now_ms >= state.not_before_ms:
                self._build(stream, state)

    def _build(self, stream: BrokerStream, state: _Indexed) -> None:
        stop, begun_ms = stream.next_offset, self._now_ms()

        def work() -> None:
            opened = Stream.open(stream.stream.path)
            if FilterRegistry(opened).read().settings.calculate_filter_bitmap:
                build_index(opened, now_ms=begun_ms, from_offset=state.offset)

        def ended(error: BaseException | None) -> None:
            state.is_running = False
            ended_ms = self._now_ms()
            state.not_before_ms = ended_ms + max(INDEX_MS, _REST * (ended_ms - begun_ms))
            if error is None:
                state.offset, state.trouble = stop, ""
            elif not isinstance(error, HeadgateError | OSError):
                raise error
            elif not stream.is_deleted and str(error) != state.trouble:
                state.trouble = str(error)
                logger.warning("the match index of stream %r is not kept up: %s", stream.name, error)

        state.is_running = True
        self._run_in_worker(work, ended)
