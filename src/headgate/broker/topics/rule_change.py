"""Changing the rules of a topic: a job for the stream's writer, so that no message is written meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.broker.stream import BrokerStream
from headgate.errors import HeadgateError, LogError
from headgate.topic import Change, TopicEditor

Changed = Callable[[int | HeadgateError], None]
"""Called once, in the broker's thread, with the offset from which the change is in force, or the error."""

ChangeTopic = Callable[[str, Sequence[Change], Changed], None]
"""Changes the topic with a name; raises HeadgateErrors for mistakes that are found at once."""


class RuleChange:
    """Changes that come into force together; made and finished in the broker's thread, `run` in any thread."""

    __slots__ = ("_changes", "_editor", "_now_ms", "_stream", "_then", "_writer", "editor", "result")

    def __init__(
        self, stream: BrokerStream, editor: TopicEditor | None, changes: Sequence[Change], then: Changed, *, now_ms: int
    ) -> None:
        """`editor` is that of the last change. Raises StreamLockedError where another process writes, LogError."""
        self._stream = stream
        self._writer = stream.open_writer(now_ms=now_ms)
        self._editor = editor
        self._changes = changes
        self._then = then
        self._now_ms = now_ms
        self.editor: TopicEditor | None = None
        """The editor for the next change; None after a failed change."""
        self.result: int | HeadgateError = LogError("the change was not made", path=stream.stream.path)

    def run(self) -> None:
        """Check the changes, compile new rules, write the changes down."""
        try:
            editor = self._editor
            if editor is None or not editor.writes_with(self._writer):
                editor = TopicEditor(self._writer, open_file=self._stream.storage.open_file)
            self.result = editor.apply(self._changes, now_ms=self._now_ms)
            self.editor = editor
        except HeadgateError as error:
            self.result = error

    def finish(self) -> None:
        """Give the result to the caller."""
        self._then(self.result)

    def abandon(self) -> None:
        """Report a failure: the change never ran, or an internal error ended it."""
        self._then(LogError("changing rules failed inside of the broker", path=self._stream.stream.path))
