"""Reads of streams that a request waits for: in a thread of their own where object storage may have to be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headgate.broker import Session
from headgate.errors import HeadgateError
from headgate.server.transport import Transport

T = TypeVar("T")


def read_stream(
    transport: Transport,
    session: Session,
    stream: str,
    read: Callable[[], T],
    then: Callable[[T | HeadgateError], None],
) -> None:
    """Read of a stream, and go on with the result or the error, at once where all of the stream is here.

    Raises ResourceNotFoundError, LogError. `then` is called even if the connection is gone by then.
    """

    def done(result: T | BaseException) -> None:
        if isinstance(result, BaseException) and not isinstance(result, HeadgateError):
            raise result
        then(result)

    if session.is_stored_remotely(stream):
        transport.run_in_storage(read, done)
        return
    try:
        found: T | HeadgateError = read()
    except HeadgateError as error:
        found = error
    then(found)
