"""Reply queues: where requesters wait for replies without a stream (RabbitMQ's direct reply-to). Nothing is stored.

A requester opens a queue and puts its name into its requests. Any client that knows the name may reply, by any protocol
that publishes to queues. A reply to a missing or a full queue is not taken. A queue ends with its requester.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable

REPLY_TO = "amq.rabbitmq.reply-to"
"""The name by which clients consume from their own queue; the name of each queue begins with it and a dot."""

_PREFIX = REPLY_TO + "."
_TOKEN_BYTES = 24


def is_reply_queue(name: str) -> bool:
    """Whether a name has the form of a reply queue's."""
    return name.startswith(_PREFIX)


class ReplyQueue:
    """Replies that wait for one requester: at most `size_bytes`, or one reply of any size."""

    __slots__ = ("_arrived", "_bytes", "_queues", "_replies", "name", "size_bytes")

    def __init__(self, name: str, queues: dict[str, ReplyQueue], arrived: Callable[[], None], size_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._queues = queues
        self._arrived = arrived
        self._replies: deque[bytes] = deque()
        self._bytes = 0
        queues[name] = self

    def put(self, message: bytes) -> bool:
        """Take a reply, a message as streams store it, and tell the requester; whether there was room."""
        if self._replies and self._bytes + len(message) > self.size_bytes:
            return False
        self._replies.append(message)
        self._bytes += len(message)
        self._arrived()
        return True

    def take(self) -> bytes | None:
        """The next reply; None without one."""
        if not self._replies:
            return None
        message = self._replies.popleft()
        self._bytes -= len(message)
        return message

    def close(self) -> None:
        """The requester has gone; again is harmless."""
        self._queues.pop(self.name, None)
        self._replies.clear()


class ReplyQueues:
    """All reply queues of a server."""

    def __init__(self) -> None:
        self._queues: dict[str, ReplyQueue] = {}

    def open(self, arrived: Callable[[], None], *, size_bytes: int) -> ReplyQueue:
        """A new queue with an unguessable name; `arrived` is called within each `put` that takes a reply."""
        name = _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        return ReplyQueue(name, self._queues, arrived, size_bytes)

    def find(self, name: str) -> ReplyQueue | None:
        """The queue of that name; None without one."""
        return self._queues.get(name)

    def put(self, name: str, message: bytes) -> bool:
        """Put a reply into the queue of that name; whether it was taken."""
        queue = self._queues.get(name)
        return queue is not None and queue.put(message)
