"""The publishers of a connection: their messages and confirms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.broker import PublishBatch, Publisher, Session
from headgate.errors import HeadgateError, LimitExceededError, PreconditionFailedError, ResourceNotFoundError
from headgate.log import Entries
from headgate.protocols.stream import Publish, ResponseCode, response_code
from headgate.protocols.stream import frames as f
from headgate.server.settings import Limits
from headgate.server.stream.outlet import Outlet

UInt64Array = NDArray[np.uint64]


@dataclass(slots=True)
class _Declared:
    """A publisher with its id; `is_deleted` once the client, or the deletion of its stream, has ended it."""

    number: int
    publisher: Publisher
    is_deleted: bool = False


class Publishers:
    """Publishers by their ids, 0 to 255; `answered` is called when some entries were confirmed or refused."""

    def __init__(self, session: Session, outlet: Outlet, limits: Limits, answered: Callable[[], None]) -> None:
        self._session = session
        self._outlet = outlet
        self._limits = limits
        self._answered = answered
        self._declared: dict[int, _Declared] = {}

    def declare(self, request: f.DeclarePublisher) -> None:
        """A new publisher. Raises PreconditionFailedError, LimitExceededError."""
        reference = request.reference or None
        if request.publisher_id in self._declared:
            raise PreconditionFailedError(f"publisher id {request.publisher_id} is in use", subject=request.stream)
        if reference is not None and self._named(request.stream, reference) is not None:
            raise PreconditionFailedError(
                f"this connection has a publisher {reference!r} of the stream", subject=request.stream
            )
        if len(self._declared) >= self._limits.publishers:
            raise LimitExceededError(f"more than {self._limits.publishers} publishers", subject=request.stream)
        publisher = self._session.publisher(request.stream, reference=reference)
        self._declared[request.publisher_id] = _Declared(request.publisher_id, publisher)

    def delete(self, publisher_id: int) -> bool:
        """End a publisher; False if there is none with this id. Its entries are written, but not confirmed."""
        declared = self._declared.pop(publisher_id, None)
        if declared is None:
            return False
        declared.is_deleted = True
        declared.publisher.close()
        return True

    def drop_stream(self, stream: str, *, only_ended: bool) -> None:
        """Forget all publishers of a stream, or only the publishers that the broker has ended."""
        for number, own in list(self._declared.items()):
            if own.publisher.stream == stream and (own.publisher.is_closed or not only_ended):
                self.delete(number)

    def publish(self, publish: Publish) -> None:
        """Hand entries to the stream; they are confirmed, or refused, when they are written."""
        declared = self._declared.get(publish.publisher_id)
        if declared is None or declared.publisher.is_closed:
            everything = np.concatenate((publish.publishing_ids, publish.refused_ids))
            self._outlet.refuse(publish.publisher_id, everything, ResponseCode.PUBLISHER_DOES_NOT_EXIST)
            return
        if len(publish.refused_ids):
            self._refuse(declared, publish.refused_ids)
        ids, entries = publish.publishing_ids, publish.entries
        limit = self._limits.message_size_bytes
        if len(ids) and entries.longest > limit:
            fits = entries.lengths <= limit
            self._refuse(declared, ids[~fits])
            ids, entries = ids[fits], entries.take(fits)
        if not len(ids):
            return
        if declared.publisher.is_held_back:
            # Some may be refused entries sent again, others must wait for those.
            for row in range(len(ids)):
                self._publish(declared, ids[row : row + 1], entries.take(np.arange(row, row + 1)))
        else:
            self._publish(declared, ids, entries)

    def _publish(self, declared: _Declared, ids: UInt64Array, entries: Entries) -> None:
        written = functools.partial(self._written, declared, ids)
        declared.publisher.publish(
            PublishBatch(entries, written, None if declared.publisher.reference is None else ids)
        )

    def _refuse(self, declared: _Declared, ids: UInt64Array) -> None:
        """Refuse entries without asking the broker."""
        declared.publisher.hold_back(ids)
        self._outlet.refuse(declared.number, ids, ResponseCode.PRECONDITION_FAILED)

    def _written(self, declared: _Declared, ids: UInt64Array, error: HeadgateError | None) -> None:
        holder: _Declared | None = declared
        if declared.is_deleted:
            # Another publisher may go on under the same reference; without one nothing is sent.
            reference = declared.publisher.reference
            holder = None if reference is None else self._named(declared.publisher.stream, reference)
        if holder is not None:
            if error is None:
                self._outlet.confirm(holder.number, ids)
            else:
                self._outlet.refuse(holder.number, ids, _code_of_failed_write(error))
        self._answered()

    def _named(self, stream: str, reference: str) -> _Declared | None:
        for declared in self._declared.values():
            if declared.publisher.reference == reference and declared.publisher.stream == stream:
                return declared
        return None


def _code_of_failed_write(error: HeadgateError) -> ResponseCode:
    """The code of a failed write: a stream that was deleted while its entries waited does not exist."""
    return ResponseCode.STREAM_DOES_NOT_EXIST if isinstance(error, ResourceNotFoundError) else response_code(error)
