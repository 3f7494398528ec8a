"""Links that clients publish on: messages become batches of the broker, its answers become outcomes.

    accepted    in every stream that the address leads to
    released    the address leads to no stream
    rejected    a stream refused it, or the message's own address is none or names an unknown exchange

Source: amqp10_rabbit, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headgate.broker.batches import PublishBatch
from headgate.broker.publishing import Publisher
from headgate.errors import BrokerError, ConfigError, HeadgateError, LogError, PreconditionFailedError
from headgate.log.build import FilterValues
from headgate.message import EncodedMessages, FieldReference, Section
from headgate.message.lookup import locate_bytes
from headgate.protocols.amqp10 import condition_of
from headgate.protocols.amqp10.events import Deliveries
from headgate.protocols.amqp10.link import Link
from headgate.protocols.amqp10.messages import StoredMessages, store_messages
from headgate.protocols.amqp10.terminus import Accepted, DeliveryState, Error, Rejected, Released
from headgate.server.amqp10.addresses import Route, parse_route

if TYPE_CHECKING:
    from headgate.server.amqp10.handler import Amqp10Handler

_TO = FieldReference(Section.PROPERTIES, position=2)
_MASK = 0xFFFFFFFF
LINK_CREDIT = 4_000
"""What a publisher may have on its way; less where the connection may have less."""

Int64Array = NDArray[np.int64]


@dataclass(slots=True)
class _Unanswered:
    """A batch on its way to some streams: its delivery ids, and how many streams have not answered."""

    ids: Int64Array
    settled: NDArray[np.bool_]
    streams: int
    error: HeadgateError | None = None


class PublishingLink:
    """One link of a publisher; `route` None: each message says where it goes."""

    def __init__(self, handler: Amqp10Handler, link: Link, route: Route | None) -> None:
        """Raises BrokerError and LogError where the address leads to nothing that the user may publish to."""
        self._handler = handler
        self._link = link
        self._route = route
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self._unanswered = 0
        self._credit = min(LINK_CREDIT, handler.context.settings.limits.unconfirmed_messages)
        if route is not None:
            if route.is_queue:
                self._publisher(route, route.key)
            else:
                handler.broker.route(route.exchange, route.key)

    def attached(self) -> None:
        """The link is there: let the peer begin."""
        self._link.grant(self._credit)

    def uses(self, stream: str) -> bool:
        """Whether the address is that of the stream itself."""
        return self._route is not None and self._route.is_queue and self._route.key == stream

    def close(self) -> None:
        """The link is gone; what is queued is still written."""
        for publisher in self._publishers.values():
            publisher.close()
        self._publishers.clear()

    def take(self, deliveries: Deliveries) -> None:
        """Publish what has arrived."""
        messages = EncodedMessages(deliveries.data, deliveries.starts, deliveries.lengths)
        self._unanswered += len(deliveries)
        if self._route is not None:
            self._publish(self._route, messages, deliveries.ids, deliveries.settled)
            return
        for rows, address in _by_address(messages):
            ids, settled = deliveries.ids[rows], deliveries.settled[rows]
            try:
                route = parse_route(address)
            except ConfigError as error:
                self._answer(ids, settled, _rejected(error))
                continue
            self._publish(route, messages.take(rows), ids, settled)
            if not self._link.is_attached:
                return

    def _publish(self, route: Route, messages: EncodedMessages, ids: Int64Array, settled: NDArray[np.bool_]) -> None:
        """Store messages for one route, and publish them to its streams."""
        stored = store_messages(messages, exchange=route.exchange, routing_key=route.key, user=self._handler.user)
        faulty = _first_fault(stored.refused)
        kept = np.ones(len(messages), dtype=bool)
        kept[list(stored.refused)] = False
        if faulty is not None:
            kept[faulty:] = False
        try:
            publishers = [self._publisher(route, stream) for stream in self._streams(route)]
        except (BrokerError, LogError) as refusal:
            self._answer(ids[kept], settled[kept], _rejected(refusal))
        else:
            self._queue(publishers, stored, kept, ids, settled)
        for row, error in stored.refused.items():
            if faulty is None or row < faulty:
                self._answer(ids[row : row + 1], settled[row : row + 1], _rejected(error))
        if faulty is not None:
            fault = stored.refused[faulty]
            self._handler.detach(self._link, Error(condition_of(fault), str(fault)))

    def _queue(
        self,
        publishers: list[Publisher],
        stored: StoredMessages,
        kept: NDArray[np.bool_],
        ids: Int64Array,
        settled: NDArray[np.bool_],
    ) -> None:
        if not kept.all():
            ids, settled = ids[kept], settled[kept]
        if not len(ids):
            return
        if not publishers:
            self._answer(ids, settled, Released())
            return
        messages, values = stored.messages, stored.filter_values
        if not kept.all():
            messages = messages.take(kept)
            values = None if values is None else FilterValues(values.data, values.starts[kept], values.lengths[kept])
        unanswered = _Unanswered(ids.copy(), settled.copy(), len(publishers))
        for publisher in publishers:
            publisher.publish(
                PublishBatch(
                    messages.data,
                    messages.starts,
                    messages.lengths,
                    lambda error: self._written(unanswered, error),
                    values,
                )
            )

    def _streams(self, route: Route) -> list[str]:
        if self._route is not None and route.is_queue:
            return [route.key]
        return self._handler.broker.route(route.exchange, route.key)

    def _publisher(self, route: Route, stream: str) -> Publisher:
        key = route.exchange, stream
        publisher = self._publishers.get(key)
        if publisher is None or publisher.is_closed:
            exchange = None if route.is_queue else route.exchange
            publisher = self._handler.broker.publisher(stream, exchange=exchange)
            self._publishers[key] = publisher
        return publisher

    def _written(self, unanswered: _Unanswered, error: HeadgateError | None) -> None:
        """One of the streams has answered; the last one decides the outcome."""
        unanswered.streams -= 1
        unanswered.error = unanswered.error or error
        if unanswered.streams:
            return
        state = Accepted() if unanswered.error is None else _rejected(unanswered.error)
        self._answer(unanswered.ids, unanswered.settled, state)
        self._handler.flush()

    def _answer(self, ids: Int64Array, settled: NDArray[np.bool_], state: DeliveryState) -> None:
        """Say the outcome of deliveries, in ranges, and let the peer go on."""
        self._unanswered -= len(ids)
        if not self._link.is_attached:
            return
        session = self._link.session
        if settled.any():
            ids = ids[~settled]
        if len(ids):
            breaks = np.flatnonzero((np.diff(ids) & _MASK) != 1) + 1
            for part in np.split(ids, breaks) if len(breaks) else (ids,):
                session.settle(int(part[0]), int(part[-1]), state)
        granted = self._credit - self._unanswered
        if self._link.credit <= self._credit // 2 and granted > self._link.credit:
            self._link.grant(granted)


def _rejected(error: HeadgateError) -> Rejected:
    return Rejected(Error(condition_of(error), str(error)))


def _first_fault(refused: Mapping[int, HeadgateError]) -> int | None:
    """The first message that is no fault of its own but of the link: not decodable, or another user's."""
    rows = [row for row, error in refused.items() if not isinstance(error, PreconditionFailedError)]
    return min(rows, default=None)


def _by_address(messages: EncodedMessages) -> list[tuple[NDArray[np.intp], str]]:
    """The rows of messages by their `to`, in order of appearance; empty where a message has none."""
    starts, lengths = locate_bytes(messages, _TO)
    rows: dict[bytes, list[int]] = {}
    for row in range(len(messages)):
        start, length = int(starts[row]), int(lengths[row])
        address = b"" if length < 0 else messages.data[start : start + length].tobytes()
        rows.setdefault(address, []).append(row)
    return [(np.array(found), address.decode("utf-8", "surrogateescape")) for address, found in rows.items()]
