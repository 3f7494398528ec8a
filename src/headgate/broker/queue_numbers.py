"""Numbers of streams: message ids of RocketMQ's clients name topic and queue by them, as 64 bits hold no names.

A number is written down before its first use, and belongs to one stream as long as that exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from headgate.broker.private_file import PrivateFile
from headgate.broker.stream import BrokerStream
from headgate.errors import ConfigError, LogError
from headgate.log import PRIVATE_FOLDER

QUEUE_NUMBERS_FORMAT = 1

MAX_NUMBER = (1 << 17) - 1
"""After this number, numbers of deleted streams are used again."""

logger = logging.getLogger("headgate.broker")


class _Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    stream: str
    identity: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    last: int
    queues: dict[int, _Queue]
    format: int = QUEUE_NUMBERS_FORMAT

    def check(self) -> None:
        if not all(0 < number <= MAX_NUMBER for number in (*self.queues, self.last or 1)):
            raise ConfigError(f"a number of a queue is not between 1 and {MAX_NUMBER}")


class QueueNumbers:
    """The numbers of one broker's streams; in its thread only."""

    def __init__(self, root: Path, find: Callable[[str], BrokerStream | None]) -> None:
        """Read the file of numbers. Raises ConfigError for a wrong one."""
        self._find = find
        self._file = PrivateFile(
            root / PRIVATE_FOLDER / "queue-numbers.json",
            _File,
            what="queue numbers",
            format=QUEUE_NUMBERS_FORMAT,
            check=_File.check,
        )
        stored = self._file.read()
        self._last = 0 if stored is None else stored.last
        self._queues: dict[int, _Queue] = {} if stored is None else dict(stored.queues)
        self._numbers = {queue.identity: number for number, queue in self._queues.items()}

    def of(self, stream: BrokerStream) -> int:
        """The number of a stream; 0, the number of no stream, if a new one cannot be written or all are in use.

        Cost: a dictionary lookup; for a stream without a number the file is written.
        """
        identity = stream.stream.identity
        number = self._numbers.get(identity)
        return self._add(_Queue(stream.name, identity)) if number is None else number

    def find(self, number: int) -> str | None:
        """The name of the stream with a number; None if there is none, or it was deleted. Raises LogError."""
        queue = self._queues.get(number)
        if queue is None:
            return None
        stream = self._find(queue.stream)
        return queue.stream if stream is not None and stream.stream.identity == queue.identity else None

    def forget(self, stream: BrokerStream) -> None:
        """A stream is deleted: its number is free, and used again after all others."""
        number = self._numbers.pop(stream.stream.identity, None)
        if number is not None:
            del self._queues[number]

    def _add(self, queue: _Queue) -> int:
        if len(self._queues) == MAX_NUMBER:
            return 0
        number = self._last % MAX_NUMBER + 1
        while number in self._queues:
            number = number % MAX_NUMBER + 1
        try:
            self._file.write(_File(number, {**self._queues, number: queue}))
        except LogError as error:
            logger.warning("message ids do not name stream %r: %s", queue.stream, error)
            return 0
        self._last = number
        self._queues[number] = queue
        self._numbers[queue.identity] = number
        return number
