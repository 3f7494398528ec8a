"""Reads of streams for requests, which are refused where the read fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headgate.broker import Session
from headgate.errors import HeadgateError
from headgate.protocols.rocketmq.remoting import Command
from headgate.server.rocketmq.remoting.answers import Answer, refusal
from headgate.server.storage_reads import read_stream
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
        """Read of a stream for a request, and go on with the result; an error is the request's refusal.

        Raises as `read_stream`.
        """

        def done(result: T | HeadgateError) -> None:
            if isinstance(result, HeadgateError):
                self._answer(command, refusal(command, result))
            else:
                then(result)

        read_stream(self._transport, session, stream, read, done)
