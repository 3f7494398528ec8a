"""Keeping match indexes up while streams are written: for streams whose registry says `calculate_filter_bitmap`.

Each second a worker decides the new chunks, from the file in the page cache, and appends their results. Missing results
of later filters are filled in when there are no new chunks, for the growing segment; older segments are built by
`headgate index build`.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from headgate.broker.environment import Environment, run_here
from headgate.broker.stream import BrokerStream
from headgate.derived.match_index import REGISTRY_NAME, GrowingIndex
from headgate.errors import HeadgateError
from headgate.log import Stream

logger = logging.getLogger("headgate.broker")

RETRY_MS = 10_000
"""After this time failed indexing is tried again."""

LATE_MS = 2_000
"""An index that is further behind is logged, once until it has caught up."""

_LOOKED_AT = 64
"""Limit: registries of quiet streams checked in a second."""

_MARKS = 64
"""Limit: marks kept of a stream; beyond it every second one is dropped."""


@dataclass(frozen=True, slots=True)
class IndexLag:
    """How far the match index of a stream is behind: offsets at the end without results, and for how long at least."""

    messages: int
    behind_ms: int


@dataclass(slots=True)
class _Indexed:
    """The index of one stream; while `is_running` the worker alone uses `growing`, except for its offset."""

    growing: GrowingIndex
    marks: deque[tuple[int, int]] = field(default_factory=deque)
    """Ends of the stream that the index has not reached, and when they were seen."""
    is_late: bool = False
    not_before_ms: int = 0
    is_running: bool = False
    has_more: bool = False
    trouble: str = ""


class MatchIndexes:
    """The match indexes of the streams that a broker writes; all calls are made in the broker's thread."""

    def __init__(self, environment: Environment) -> None:
        self._now_ms = environment.now_ms
        self._run_in_worker = environment.workers.background or run_here
        self._indexed: dict[BrokerStream, _Indexed] = {}
        self._looked_at = 0

    def begin(self, stream: BrokerStream) -> None:
        """Keep up the index of a stream that is written from now on, or has filters; again is harmless."""
        if stream not in self._indexed:
            opened = Stream(stream.stream.path, stream.stream.settings)
            self._indexed[stream] = _Indexed(GrowingIndex(opened, stream.next_offset))

    def tick(self, now_ms: int) -> None:
        """Index new chunks, and fill in results of new filters; called about once a second."""
        quiet: list[tuple[BrokerStream, _Indexed]] = []
        for stream, state in list(self._indexed.items()):
            self._look_at_lag(stream, state, now_ms)
            if state.is_running:
                continue
            growing = state.growing
            is_behind = growing.offset < stream.next_offset
            if is_behind and not growing.is_wanted and not (stream.stream.path / REGISTRY_NAME).exists():
                growing.offset, is_behind = stream.next_offset, False
            is_due = is_behind or state.has_more
            if stream.is_deleted:
                growing.close()
                del self._indexed[stream]
            elif now_ms < state.not_before_ms:
                continue
            elif is_due:
                self._step(stream, state)
            else:
                if stream.writer is None:
                    growing.close()
                quiet.append((stream, state))
        for _ in range(min(_LOOKED_AT, len(quiet))):
            self._looked_at = (self._looked_at + 1) % len(quiet)
            stream, state = quiet[self._looked_at]
            if state.growing.has_news:
                self._step(stream, state)

    def lag(self, stream: BrokerStream) -> IndexLag | None:
        """How far the index of a stream is behind; None if it has none."""
        state = self._indexed.get(stream)
        if state is None or not state.growing.is_wanted:
            return None
        offset = state.growing.offset
        seen_ms = next((seen_ms for stop, seen_ms in state.marks if stop > offset), None)
        behind_ms = 0 if seen_ms is None else max(0, self._now_ms() - seen_ms)
        return IndexLag(max(0, stream.next_offset - offset), behind_ms)

    def _look_at_lag(self, stream: BrokerStream, state: _Indexed, now_ms: int) -> None:
        marks, offset, stop = state.marks, state.growing.offset, stream.next_offset
        while marks and marks[0][0] <= offset:
            marks.popleft()
        if stop > offset and (not marks or marks[-1][0] < stop):
            if len(marks) >= _MARKS:
                # Between two marks the lag is reported too small.
                state.marks = marks = deque(list(marks)[::2])
            marks.append((stop, now_ms))
        lag = self.lag(stream)
        if lag is None or lag.behind_ms < LATE_MS:
            state.is_late = False
        elif not state.is_late:
            state.is_late = True
            logger.warning(
                "the match index of stream %r is %d messages and %.1f s behind",
                stream.name,
                lag.messages,
                lag.behind_ms / 1000,
            )

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
                    # After the waiting steps of other streams.
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
