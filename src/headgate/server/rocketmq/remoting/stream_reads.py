"""Reads that a request waits for: in a thread of their own where object storage may have to be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headgate.broker import Session
from headgate.errors import HeadgateError
from headgate.protocols.rocketmq.remoting import Command
from headgate.server.rocketmq.remoting.answers import Answer, refusal
from headgate.server.transport import Transport

T = TypeVar("T")


class StreamReads:
    """The reads of one connection."""

    def __init__(self, transport: Transport, answer: Answer) -> None:
        self._transport = transport
        self._answer = answer

    def run(
        self, session: Session, command: Command, stream: str, read: Callable[[], T], then: Callable[[T], None]
    ) -> None:
        """Read of a stream for a request, and go on with the result, at once where all of the stream is here.

        Raises HeadgateError; what is found later is the request's refusal.
        """
        if not session.is_stored_remotely(stream):
            then(read())
            return

        def done(result: T | BaseException) -> None:
            if isinstance(result, HeadgateError):
                self._answer(command, refusal(command, result))
            elif isinstance(result, BaseException):
                raise result
            else:
                then(result)

        self._transport.run_in_storage(read, done)
