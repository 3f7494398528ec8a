"""Changing the rules of a topic: a job for the stream's writer, like a write, so that nothing is written meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from headgate.broker.stream import BrokerStream
from headgate.errors import HeadgateError, LogError
from headgate.topic import Change, TopicEditor

Changed = Callable[[int | HeadgateError], None]
"""Called once, in the broker's thread: the offset from which a change is in force, or why it is not made."""

ChangeTopic = Callable[[str, Sequence[Change], Changed], None]
"""Changes the topic of a name; raises HeadgateErrors for what is found wrong at once."""


class RuleChange:
    """Some changes that are in force together; `begin` and `finish` in the broker's thread, `run` in any."""

    __slots__ = ("_changes", "_editor", "_now_ms", "_stream", "_then", "_writer", "done", "editor", "result")

    def __init__(
        self, stream: BrokerStream, editor: TopicEditor | None, changes: Sequence[Change], then: Changed, *, now_ms: int
    ) -> None:
        """`editor` is the one of the last change. Raises StreamLockedError where another process writes, LogError."""
        self._stream = stream
        self._writer = stream.open_writer(now_ms=now_ms)
        self._editor = editor
        self._changes = changes
        self._then = then
        self._now_ms = now_ms
        self.editor: TopicEditor | None = None
        """The editor for the next change; None after one that failed."""
        self.result: int | HeadgateError = LogError("the change was not made", path=stream.stream.path)
        self.done: threading.Event | None = None

    def run(self) -> None:
        """Check the changes, compile what is new, write it down."""
        try:
            editor = self._editor
            if editor is None or not editor.writes_with(self._writer):
                editor = TopicEditor(self._writer, open_file=self._stream.storage.open_file)
            self.result = editor.apply(self._changes, now_ms=self._now_ms)
            self.editor = editor
        except HeadgateError as error:
            self.result = error
        finally:
            if self.done is not None:
                self.done.set()

    def finish(self) -> None:
        """Tell who asked."""
        self._then(self.result)

    def abandon(self) -> None:
        """It never ran, or failed with an error of ours."""
        self._then(LogError("changing rules failed inside of the broker", path=self._stream.stream.path))
