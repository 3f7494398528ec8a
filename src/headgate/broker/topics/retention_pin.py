"""The pin of a topic: the offset from which the retention of its stream has to keep messages.

The pin is a file beside the stream, written by the stream's writer, so that every process respects it.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.broker.intervals import is_over
from headgate.broker.repeated_failure import RepeatedFailure
from headgate.broker.stream import BrokerStream
from headgate.errors import BrokerError, LogError
from headgate.ledger import Ledger
from headgate.log import Pin, pinned_bytes, read_pin
from headgate.topic import RuleHistory, view_key

_PIN_MS = 1_000
_PIN_WITHOUT_WRITER_MS = 10_000


class RetentionPin:
    """The pin of one stream, as last written."""

    def __init__(self, stream: BrokerStream) -> None:
        self._stream = stream
        self._pinned = read_pin(stream.stream.path)
        self._pinned_ms = 0
        self._trouble = RepeatedFailure()

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to check the pin again."""
        return is_over(self._pinned_ms, _PIN_MS if self._stream.writer is not None else _PIN_WITHOUT_WRITER_MS, now_ms)

    def look_soon(self) -> None:
        """The wanted pin may have changed: make the next check due."""
        self._pinned_ms = 0

    def keep(self, wanted: Callable[[int], Pin | None], now_ms: int) -> None:
        """Write the wanted pin if it differs. Takes the stream's writer for that."""
        stream = self._stream
        if stream.is_writing:
            return
        self._pinned_ms = now_ms
        had_writer = stream.writer is not None
        try:
            pin = wanted(now_ms)
            if pin == self._pinned:
                return
            stream.open_writer(now_ms=now_ms).pin(pin)
            self._pinned = pin
        except (LogError, BrokerError) as error:
            self._trouble.note(f"topic {stream.name!r}: retention does not know what is needed", error, now_ms)
        finally:
            if not had_writer:
                stream.close_writer()


def wanted_pin(stream: BrokerStream, needed: int | None, quota_bytes: int, *, now_ms: int) -> Pin | None:
    """The pin for retention: messages from `needed` on (None without subscriptions), and the window for duplicates.

    Messages of the window that only duplicate detection needs do not count towards the quota. Raises LogError.
    """
    ids = stream.recent_ids
    if ids is None:
        return None if needed is None else Pin(needed, quota_bytes)
    needed = stream.next_offset if needed is None else needed
    with stream.guarded():
        # What has left the folder was not needed before, and is not needed again.
        window = Pin(min(needed, stream.stream.offset_here_since(max(now_ms - ids.window_ms, 0))), quota_bytes)
        held_bytes = pinned_bytes(stream.stream, window) - pinned_bytes(stream.stream, Pin(needed, quota_bytes))
    return Pin(window.offset, quota_bytes + held_bytes)


def needed_at_opening(stream: BrokerStream, ledger: Ledger) -> int:
    """The lowest offset that a subscription may need, also one that has no view in the ledger yet."""
    history = RuleHistory.load(stream.stream)
    created, keys = history.created(), {view.key for view in ledger.views()}
    needed = [created[each.number] for each in history.subscriptions() if view_key(each.number) not in keys]
    return min([*needed, stream.next_offset if ledger.pin is None else ledger.pin])
